// Bundles the console into `dist`: `node build.mjs`, or `node build.mjs FOLDER`. File names never change, so that a change of one
// file is a change of one file; the program compresses them and gives them tags.
import { createRequire } from 'node:module';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import esbuild from 'esbuild';
import { compile, compileModule } from 'svelte/compiler';

const here = path.dirname(fileURLToPath(import.meta.url));
const out = path.resolve(process.argv[2] ?? path.join(here, 'dist'));
const require = createRequire(import.meta.url);

// Components, and modules with runes. Styles are in one file of their own.
const svelte = {
  name: 'svelte',
  setup(build) {
    const strip = (source, loader) => esbuild.transformSync(source, { loader, target: 'es2022', tsconfigRaw: { compilerOptions: { verbatimModuleSyntax: true } } }).code;
    build.onLoad({ filter: /\.svelte$/ }, ({ path: file }) => {
      const name = path.relative(here, file);
      const { js, warnings } = compile(readFileSync(file, 'utf8'), { filename: name, generate: 'client', css: 'external', dev: false });
      return { contents: js.code, loader: 'js', resolveDir: path.dirname(file), warnings: warnings.map((one) => ({ text: `${name}: ${one.message}` })) };
    });
    build.onLoad({ filter: /\.svelte\.ts$/ }, ({ path: file }) => {
      const plain = strip(readFileSync(file, 'utf8'), 'ts');
      const { js } = compileModule(plain, { filename: path.relative(here, file), generate: 'client', dev: false });
      return { contents: js.code, loader: 'js', resolveDir: path.dirname(file) };
    });
  },
};

// The term builder of the official driver, without its connections and its promises.
const driver = {
  name: 'driver',
  setup(build) {
    build.onResolve({ filter: /^(\.\/net|bluebird)$/ }, ({ path: name, importer }) => (importer.includes('rethinkdb') ? { path: name, namespace: 'absent' } : null));
    build.onLoad({ filter: /./, namespace: 'absent' }, ({ path: name }) => ({ contents: name === './net' ? 'exports.isConnection = () => false;' : 'module.exports = Promise;', loader: 'js' }));
  },
};

const common = { bundle: true, minify: true, target: 'es2022', legalComments: 'none', write: false, logLevel: 'warning', absWorkingDir: here };

async function bundle(options) {
  const result = await esbuild.build({ ...common, ...options });
  if (result.warnings.length > 0) throw new Error('the bundle has warnings');
  return result.outputFiles[0].text;
}

// The first page, the other pages, and what both have in common.
const pages = await esbuild.build({ ...common, entryPoints: { app: 'src/main.ts', pages: 'src/pages.ts' }, format: 'esm', splitting: true, chunkNames: 'shared', outdir: out, plugins: [svelte], external: ['./editor.js', './chart.js'] });
if (pages.warnings.length > 0 || pages.outputFiles.length !== 3) throw new Error('the pages have warnings, or are in other files');

const files = {
  ...Object.fromEntries(pages.outputFiles.map((file) => [path.basename(file.path), file.text])),
  'chart.js': await bundle({ entryPoints: ['src/chart/plot.ts'], format: 'esm' }),
  'editor.js': await bundle({ entryPoints: ['src/explorer/editor.ts'], format: 'esm' }),
  'style.css': await bundle({ entryPoints: ['src/style.css'] }),
  'index.html': readFileSync(path.join(here, 'src/index.html'), 'utf8'),
  'icon.svg': readFileSync(path.join(here, 'src/icon.svg'), 'utf8'),
};
const worker = await bundle({ entryPoints: ['src/sandbox/worker.ts'], format: 'iife', plugins: [driver] });
const frame = await bundle({ entryPoints: ['src/sandbox/frame.ts'], format: 'iife', define: { WORKER: JSON.stringify(worker).replaceAll('</', '<\\/') } });
files['sandbox.html'] = `<!doctype html><meta charset="utf-8"><title>Scripts</title><script>${frame.replaceAll('</', '<\\/')}</script>\n`;
files['licenses.txt'] = licenses(['svelte', '@codemirror/view', 'uplot', 'rethinkdb']);

// The licences of what the bundles contain.
function licenses(names) {
  const text = ['The console contains, besides Rekindle (Apache-2.0):', ''];
  text.push('Svelte, CodeMirror, Lezer and uPlot: MIT.', 'The term builder of the RethinkDB driver: Apache-2.0.', 'Icons of Lucide: ISC.', '');
  for (const name of names) text.push(`${name} ${require(path.join(here, 'node_modules', name, 'package.json')).version}`);
  return `${text.join('\n')}\n`;
}

rmSync(out, { recursive: true, force: true });
mkdirSync(out, { recursive: true });
for (const [name, text] of Object.entries(files)) writeFileSync(path.join(out, name), text);

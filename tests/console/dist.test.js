// `ui/dist` is what the sources give, and stays small.
'use strict';

const assert = require('node:assert');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const zlib = require('node:zlib');

const { cache } = require('./harness.js');

const ui = path.join(__dirname, '..', '..', 'ui');
const dist = path.join(ui, 'dist');
const sizes = Object.fromEntries(fs.readdirSync(dist).map((name) => [name, zlib.gzipSync(fs.readFileSync(path.join(dist, name)), { level: 9 }).length]));

test('the committed files are what the sources give', () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rekindle-ui-'));
  try {
    for (const name of ['src', 'build.mjs', 'package.json', 'tsconfig.json']) fs.cpSync(path.join(ui, name), path.join(folder, name), { recursive: true });
    fs.symlinkSync(path.join(cache, 'ui', 'node_modules'), path.join(folder, 'node_modules'));
    execFileSync(process.execPath, ['build.mjs'], { cwd: folder, stdio: ['ignore', 'ignore', 'inherit'] });
    const made = fs.readdirSync(path.join(folder, 'dist')).sort();
    assert.deepEqual(fs.readdirSync(dist).sort(), made);
    for (const name of made) {
      const same = fs.readFileSync(path.join(folder, 'dist', name)).equals(fs.readFileSync(path.join(dist, name)));
      assert.ok(same, `ui/dist/${name} is not what ui/src gives: run \`npm ci && node build.mjs\` in ui, and commit ui/dist`);
    }
  } finally {
    fs.rmSync(folder, { recursive: true, force: true });
  }
});

test('the first page, the explorer and all files are small', () => {
  const first = sizes['app.js'] + sizes['shared.js'] + sizes['chart.js'];
  assert.ok(first <= 100_000, `scripts of the first page: ${first}`);
  assert.ok(sizes['style.css'] <= 20_000, `styles: ${sizes['style.css']}`);
  const explorer = sizes['pages.js'] + sizes['editor.js'] + sizes['sandbox.html'];
  assert.ok(explorer <= 260_000, `explorer: ${explorer}`);
  const all = Object.values(sizes).reduce((sum, size) => sum + size);
  assert.ok(all <= 450_000, `all: ${all}`);
});

// The official driver in the browser: its connection over HTTP runs tests/drivers/scenarios.txt.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { createRequire } = require('node:module');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { cache, closeBrowser, done, open, Server } = require('./harness.js');
const { plain, scenarios } = require('../drivers/javascript/scenarios.js');

const drivers = path.join(__dirname, '..', 'drivers');
const found = scenarios(fs.readFileSync(path.join(drivers, 'scenarios.txt'), 'utf8'));

// What the driver takes from Node. Bundlers for browsers have such parts.
const NODE = `
  export const process = { browser: true, nextTick: (call, ...args) => queueMicrotask(() => call(...args)) };
  export class Buffer extends Uint8Array {
    constructor(from, encoding, length) {
      if (typeof from !== 'string') super(from, encoding, length);
      else super(encoding === 'base64' ? Array.from(atob(from), (letter) => letter.charCodeAt(0)) : new TextEncoder().encode(from));
    }
    static from(value, encoding) { return new Buffer(value, encoding); }
    static alloc(length) { return new Buffer(length); }
    static isBuffer(value) { return value instanceof Buffer; }
    static concat(parts) { return new Buffer(parts.flatMap((part) => [...part])); }
    slice(from, to) { return this.subarray(from, to); }
    view() { return new DataView(this.buffer, this.byteOffset, this.byteLength); }
    readUInt32LE(at) { return this.view().getUint32(at, true); }
    writeUInt32LE(value, at) { this.view().setUint32(at, value, true); }
    write(text, at) { this.set(new TextEncoder().encode(text), at); }
    toString(encoding) { return encoding === 'base64' ? btoa(String.fromCharCode(...this)) : new TextDecoder().decode(this); }
  }
`;
const EVENTS = `
  exports.EventEmitter = class {
    list(name) { return ((this._events ??= {})[name] ??= []); }
    on(name, call) { this.list(name).push({ call }); return this; }
    addListener(name, call) { return this.on(name, call); }
    once(name, call) { this.list(name).push({ call, isOnce: true }); return this; }
    removeListener(name, call) { this._events[name] = this.list(name).filter((one) => one.call !== call); return this; }
    removeAllListeners(name) { if (name) delete this._events[name]; else this._events = {}; return this; }
    listeners(name) { return this.list(name).map((one) => one.call); }
    emit(name, ...args) {
      const called = [...this.list(name)];
      this._events[name] = this.list(name).filter((one) => !one.isOnce);
      called.forEach((one) => one.call.apply(this, args));
      return called.length > 0;
    }
  };
  // The classes of the driver call it without new.
  exports.EventEmitter = Object.assign(function EventEmitter() {}, { prototype: exports.EventEmitter.prototype });
`;

async function bundle() {
  const { build } = createRequire(path.join(cache, 'ui', 'package.json'))('esbuild');
  const parts = {
    name: 'parts',
    setup({ onResolve, onLoad }) {
      onResolve({ filter: /^(net|tls|crypto|events|node-parts)$/ }, ({ path: name }) => ({ path: name, namespace: 'parts' }));
      onLoad({ filter: /./, namespace: 'parts' }, ({ path: name }) => ({ contents: { events: EVENTS, 'node-parts': NODE }[name] ?? '', loader: 'js' }));
    },
  };
  const contents = `
    import { Buffer, process } from 'node-parts';
    Object.assign(globalThis, { Buffer, process });
    globalThis.driver = { r: () => require('rethinkdb'), ...require('./scenarios.js') };
  `;
  const made = await build({
    bundle: true, write: false, keepNames: true, format: 'iife', platform: 'browser', logLevel: 'silent', plugins: [parts], nodePaths: [path.join(cache, 'console', 'node_modules')],
    stdin: { contents, resolveDir: path.join(drivers, 'javascript') },
  });
  return made.outputFiles[0].text;
}

let server, page;

before(async () => {
  server = await new Server().start();
  // A page of the console's origin has its session.
  page = await open(server, '/', { before: await bundle() });
  await page.waitForSelector('.tiles');
  await page.evaluate(async ({ port }) => {
    const r = globalThis.driver.r();
    globalThis.connection = await r.connect({ host: 'localhost', port, pathname: '/' });
  }, { port: server.ports.http });
});
after(async () => { await closeBrowser(); await server.remove(); });

for (const scenario of found) {
  test(`over HTTP: ${scenario.name}`, async () => {
    await page.evaluate(async () => { const r = globalThis.driver.r(); await r.tableList().forEach((name) => r.tableDrop(name)).run(globalThis.connection); });
    for (const { query, want, line } of scenario.cases) {
      const answer = await page.evaluate((text) => globalThis.driver.answer(globalThis.driver.r(), globalThis.connection, text, ({ value }) => value), query);
      assert.deepStrictEqual(plain(answer), plain(JSON.parse(want)), `line ${line}: ${query}`);
    }
  });
}

test('the connection is one over HTTP, and closes', async () => {
  const names = await page.evaluate(async () => {
    const { constructor } = globalThis.connection;
    await globalThis.connection.close({ noreplyWait: false });
    return [constructor.name, globalThis.connection.open];
  });
  assert.deepEqual(names, ['HttpConnection', false]);
  await done(page);
});

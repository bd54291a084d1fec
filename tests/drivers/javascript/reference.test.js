// The `js` blocks of docs/reference: `> ` begins an expression; its result is below it.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { createRequire } = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { Node } = require('./node.js');

const cache = process.env.REKINDLE_CACHE || path.join(os.homedir(), '.cache', 'rekindle');
const r = createRequire(path.join(cache, 'node', 'package.json'))('rethinkdb');
const reference = path.join(__dirname, '..', '..', '..', 'docs', 'reference');

const AsyncFunction = (async () => {}).constructor;
let node;
let conn;

before(async () => {
  node = await new Node().start();
});

after(async () => {
  await node.remove();
});

// Pages with examples: {name, examples: [{source, want, line}]}.
function pages() {
  const found = fs.readdirSync(reference, { recursive: true }).filter((name) => name.endsWith('.md')).sort();
  return found.map((name) => ({ name, examples: examplesOf(fs.readFileSync(path.join(reference, name), 'utf8')) }))
    .filter((page) => page.examples.length > 0);
}

function examplesOf(text) {
  const examples = [];
  let inside = false;
  text.split('\n').forEach((line, index) => {
    if (line.startsWith('```')) inside = line === '```js';
    else if (inside && line.startsWith('> ')) examples.push({ source: line.slice(2), want: '', line: index + 1 });
    else if (inside) examples[examples.length - 1].want += line;
  });
  return examples;
}

async function given(source) {
  try {
    const value = await new AsyncFunction('r', 'conn', `return (${source});`)(r, conn);
    return value && typeof value.toArray === 'function' ? { value: await value.toArray() } : { value };
  } catch (error) {
    return { error: `${error.name}: ${error.msg}` };
  }
}

// Without the prototypes that the driver gives to its arrays.
const plain = structuredClone;

test('there are examples', () => {
  assert.notStrictEqual(pages().length, 0);
});

for (const page of pages()) {
  test(`${page.name} says what the driver gives`, async () => {
    conn = await r.connect({ host: '127.0.0.1', port: node.driverPort });
    for (const { source, want, line } of page.examples) {
      const got = await given(source);
      const place = `${page.name}, line ${line}: ${source}`;
      if (want.startsWith('Reql')) assert.strictEqual(got.error, want, place);
      else assert.deepStrictEqual(plain(got), plain({ value: new Function(`return (${want});`)() }), place);
    }
    await conn.close();
  });
}

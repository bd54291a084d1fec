// tests/drivers/scenarios.txt through the official JavaScript driver: the same as through the Python one.
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
const file = path.join(__dirname, '..', 'scenarios.txt');

let node;
let connection;

before(async () => {
  node = await new Node().start();
  connection = await r.connect({ host: '127.0.0.1', port: node.driverPort });
});

after(async () => {
  await connection.close({ noreplyWait: false }).catch(() => {});
  await node.remove();
});

// The scenarios with their cases: {name, cases: [{query, want, line}]}.
function scenarios() {
  const found = [];
  let query = '';
  fs.readFileSync(file, 'utf8').split('\n').forEach((line, index) => {
    const [kind, rest] = [line.slice(0, 3), line.slice(3)];
    if (kind === '== ') found.push({ name: rest, cases: [] });
    else if (kind === 'py ') query = inJavaScript(rest);
    else if (kind === 'js ') query = rest;
    else if (kind === '-> ') found[found.length - 1].cases.push({ query, want: rest, line: index + 1 });
  });
  return found;
}

// Terms are called getAll here, not get_all.
function inJavaScript(query) {
  return query.replace(/\.([a-z]+(?:_[a-z0-9]+)+)\(/g, (term) => term.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()));
}

// A value as the file writes it.
function plain(value) {
  if (Buffer.isBuffer(value)) return { bytes: value.toString('base64') };
  if (value instanceof Date) return { ms: value.getTime() };
  if (Array.isArray(value)) return Array.from(value, plain);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, plain(value[name])]));
}

async function answer(query) {
  try {
    const value = await r.expr(new Function('r', `return ${query};`)(r)).run(connection, { groupFormat: 'raw' });
    if (value && value.$reql_type$ === 'GROUPED_DATA') return { groups: plain(value.data) };
    // The driver adds a toArray to arrays.
    if (value && !Array.isArray(value) && typeof value.toArray === 'function') {
      return plain(await value.toArray()).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
    }
    return plain(value);
  } catch (error) {
    if (!error.msg) throw error;
    return { error: [error.name, error.msg.split('\n')[0]] };
  }
}

test('there are scenarios', () => {
  assert.ok(scenarios().length >= 7);
});

for (const scenario of scenarios()) {
  test(scenario.name, async () => {
    await r.tableList().forEach((name) => r.tableDrop(name)).run(connection);
    for (const { query, want, line } of scenario.cases) {
      assert.deepStrictEqual(await answer(query), plain(JSON.parse(want)), `line ${line}: ${query}`);
    }
  });
}

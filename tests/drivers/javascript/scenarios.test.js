// tests/drivers/scenarios.txt through the official JavaScript driver: the same as through the Python one.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { createRequire } = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { Node } = require('./node.js');
const { answer, plain, scenarios } = require('./scenarios.js');

const cache = process.env.REKINDLE_CACHE || path.join(os.homedir(), '.cache', 'rekindle');
const r = createRequire(path.join(cache, 'node', 'package.json'))('rethinkdb');
const found = scenarios(fs.readFileSync(path.join(__dirname, '..', 'scenarios.txt'), 'utf8'));

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

test('there are scenarios', () => {
  assert.ok(found.length >= 7);
});

for (const scenario of found) {
  test(scenario.name, async () => {
    await r.tableList().forEach((name) => r.tableDrop(name)).run(connection);
    for (const { query, want, line } of scenario.cases) {
      assert.deepStrictEqual(await answer(r, connection, query), plain(JSON.parse(want)), `line ${line}: ${query}`);
    }
  });
}

// Documents and connections through the official JavaScript driver.
'use strict';

const assert = require('node:assert');
const { createRequire } = require('node:module');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { Node } = require('./node.js');

const cache = process.env.REKINDLE_CACHE || path.join(os.homedir(), '.cache', 'rekindle');
const r = createRequire(path.join(cache, 'node', 'package.json'))('rethinkdb');

const CURSOR_ROWS = 100000;
let node;
let connection;

before(async () => {
  node = await new Node().start();
  connection = await r.connect({ host: '127.0.0.1', port: node.driverPort });
  await r.tableCreate('t').run(connection);
});

after(async () => {
  await connection.close({ noreplyWait: false }).catch(() => {});
  await node.remove();
});

test('a document goes in, changes and goes away', async () => {
  const row = { id: 'a', name: 'Ada', tags: ['x', 'y'], deep: { n: 1.5, none: null } };
  assert.strictEqual((await r.table('t').insert(row).run(connection)).inserted, 1);
  assert.deepStrictEqual(await r.table('t').get('a').run(connection), row);
  const changed = await r.table('t').get('a').update({ n: r.row('deep')('n').add(1) }, { returnChanges: true }).run(connection);
  assert.strictEqual(changed.changes[0].new_val.n, 2.5);
  assert.strictEqual((await r.table('t').get('a').delete().run(connection)).deleted, 1);
  assert.strictEqual(await r.table('t').get('a').run(connection), null);
});

test('a cursor walks over all rows once', async () => {
  for (let start = 0; start < CURSOR_ROWS; start += 10000) {
    const rows = Array.from({ length: 10000 }, (_, n) => ({ id: start + n }));
    await r.table('t').insert(rows, { durability: 'soft' }).run(connection);
  }
  const cursor = await r.table('t').run(connection);
  const seen = new Set();
  await cursor.eachAsync((row) => { seen.add(row.id); });
  assert.strictEqual(seen.size, CURSOR_ROWS);
  const first = await r.table('t').orderBy({ index: r.desc('id') }).limit(3).run(connection);
  assert.deepStrictEqual((await first.toArray()).map((row) => row.id), [99999, 99998, 99997]);
  assert.strictEqual((await r.table('t').delete().run(connection)).deleted, CURSOR_ROWS);
});

test('noreply writes are there after noreplyWait', async () => {
  for (let n = 0; n < 300; n += 1) await r.table('t').insert({ id: n }).run(connection, { noreply: true });
  await connection.noreplyWait();
  assert.strictEqual(await r.table('t').count().run(connection), 300);
});

test('errors have the right class and message', async () => {
  const cases = [
    [r.expr(1).add('a'), 'ReqlQueryLogicError', 'Expected type NUMBER but found STRING'],
    [r.expr({ a: 1 })('b'), 'ReqlNonExistenceError', 'No attribute `b` in object'],
    [r.table('missing'), 'ReqlOpFailedError', 'Table `test.missing` does not exist'],
    [r.error('mine'), 'ReqlUserError', 'mine'],
  ];
  for (const [query, name, message] of cases) {
    await assert.rejects(query.run(connection), (error) => {
      assert.strictEqual(error.name, name);
      assert.ok(error.msg.startsWith(message), error.msg);
      return true;
    });
  }
});

test('map-reduce, groups and functions', async () => {
  const numbers = r.range(10).map((n) => n.mul(n));
  assert.strictEqual(await numbers.sum().run(connection), 285);
  const groups = await r.expr([{ k: 1, v: 2 }, { k: 1, v: 3 }, { k: 2, v: 5 }]).group('k').sum('v').run(connection);
  assert.deepEqual(groups, [{ group: 1, reduction: 5 }, { group: 2, reduction: 5 }]);
});

test('the driver comes back after a restart and finds what was acknowledged', async () => {
  await r.table('t').insert({ id: 'kept', at: 'kill -9' }).run(connection);
  await node.kill();
  await node.start();
  await connection.reconnect({ noreplyWait: false });
  assert.deepStrictEqual(await r.table('t').get('kept').run(connection), { id: 'kept', at: 'kill -9' });
});

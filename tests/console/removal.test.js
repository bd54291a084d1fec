// A server that runs is removed: previewed, its replicas moved, then stopped and deleted.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, open, r, see, Server, text } = require('./harness.js');

let one, other, third;
const system = (name) => r.db('rethinkdb').table(name);
const heroes = r.db('test').table('heroes');

before(async () => {
  one = await new Server().start();
  other = await new Server(['--server-tag', 'default', '--server-tag', 'old', '--join', `localhost:${one.ports.cluster}`], 'bea').start();
  third = await new Server(['--join', `localhost:${one.ports.cluster}`], 'cleo').start();
  await one.run(r.db('test').tableCreate('heroes', { shards: 2, replicas: { old: 1 }, primaryReplicaTag: 'old' }));
  await one.run(heroes.wait());
  await one.run(heroes.insert(r.range(200).map((i) => ({ id: i }))));
});
after(async () => { await closeBrowser(); for (const server of [third, other, one]) await server.remove(); });

test('a server that runs is removed without a loss', async () => {
  const page = await open(one, '/servers/bea');
  await page.click('button:has-text("Remove…")');
  await page.waitForSelector('[data-name=moves]:has-text("test.heroes")');
  assert.match(await text(page, 'dialog'), /replicas of 2 shards in 1 table[\s\S]*(ada|cleo)/);
  assert.deepEqual((await one.run(heroes.config())).shards.map((shard) => shard.replicas), [['bea'], ['bea']], 'a preview changes nothing');
  await page.click('dialog .actions button.primary');
  await page.waitForSelector('dialog', { state: 'detached' });
  await eventually(() => one.run(heroes.status()), ({ status, shards }) => status.all_replicas_ready && shards.every((shard) => shard.replicas.every((replica) => replica.server !== 'bea')), 20_000);
  await page.click('button:has-text("Remove…")');
  await page.waitForSelector('[data-name=empty]');
  await page.keyboard.press('Escape');
  await other.kill();
  await page.click('button:has-text("Remove for good")', { timeout: 20_000 });
  await page.fill('[data-name=confirm]', 'bea');
  await page.click('dialog .actions button.primary');
  await eventually(() => one.run(system('server_config')('name').coerceTo('array')), (names) => !names.includes('bea'), 20_000);
  assert.equal(await one.run(heroes.count()), 200);
  await see(page, 'cleo');
  await done(page);
});

test('a table that has no other server to go to keeps the server', async () => {
  const alone = await new Server([], 'dora').start();
  try {
    await alone.run(r.db('test').tableCreate('heroes'));
    const page = await open(alone, '/servers/dora');
    await page.click('button:has-text("Remove…")');
    await page.waitForSelector('dialog:has-text("no other server to go to")');
    assert.ok(await page.isDisabled('dialog .actions button.primary'));
    await done(page);
  } finally {
    await alone.remove();
  }
});

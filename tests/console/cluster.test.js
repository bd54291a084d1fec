// Two servers: what is shown when one is lost, and how its tables are mended.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

let one, other;
const heroes = r.db('test').table('heroes');

before(async () => {
  one = await new Server().start();
  other = await new Server(['--join', `localhost:${one.ports.cluster}`], 'bea').start();
  await one.run(r.db('test').tableCreate('heroes', { replicas: 2 }));
  await one.run(heroes.wait());
  await one.run(heroes.insert(r.range(100).map((i) => ({ id: i }))));
  await one.run(r.db('rethinkdb').table('server_config').filter({ name: 'bea' }).update({ tags: ['default', 'far'] }));
  await one.run(r.db('test').tableCreate('lonely', { primaryReplicaTag: 'far', replicas: { far: 1 } }));
  await one.run(r.db('test').table('lonely').insert({ id: 1, name: 'lonely row' }));
});
after(async () => { await closeBrowser(); await other.remove(); await one.remove(); });

test('both servers and the replicas are shown, and a replica is taken away and added', async () => {
  const page = await open(one, '/servers');
  await see(page, /ada[\s\S]*bea/);
  await go(page, '/tables/test/heroes/shards');
  await see(page, 'With 2 replicas');
  assert.equal(await page.locator('.replica').count(), 2);
  await page.fill('[data-name=replicas]', '1');
  await page.waitForSelector('[data-name=preview] .replica.gone');
  await page.click('button:has-text("Apply")');
  await eventually(() => one.run(heroes.config()), (config) => config.shards[0].replicas.length === 1);
  await page.fill('[data-name=replicas]', '2');
  await page.waitForSelector('[data-name=preview] .replica.added');
  await see(page, '1 replica will be copied');
  await page.click('button:has-text("Apply")');
  await eventually(() => one.run(heroes.status()), (status) => status.status.all_replicas_ready && status.shards[0].replicas.length === 2);
  await done(page);
});

test('each server keeps its figures, and both have the saved queries', async () => {
  const system = (name) => r.db('rethinkdb').table(name);
  assert.deepEqual(await other.run(system('_metrics').filter({ interval_sec: 10 })('server').coerceTo('array').do((names) => r.expr(names).orderBy((name) => name))), ['ada', 'bea']);
  assert.equal((await one.run(system('_saved_queries').insert({ name: 'all', query: "r.table('heroes')", is_shared: true }))).inserted, 1);
  const page = await open(other, '/explorer');
  await page.click('.head button:has-text("Saved")');
  await page.click('[data-name=saved] button:has-text("Open")');
  await eventually(() => text(page, '.cm-content'), (seen) => seen.includes("r.table('heroes')"));
  await done(page);
});

test('a plan names shards on other servers', async () => {
  await one.run(r.db('test').tableCreate('pair', { shards: 2, primaryReplicaTag: 'far', replicas: { far: 1 } }));
  const page = await open(one, '/explorer');
  for (const [name, wanted] of [['pair', '2 shards, both on other servers'], ['lonely', '1 shard, on another server']]) {
    await query(page, `r.db('test').table('${name}').count()`);
    await page.waitForSelector('.segments');
    await page.click('button:has-text("Explain")');
    await see(page, wanted);
  }
  await one.run(r.db('test').tableDrop('pair'));
  await done(page);
});

test('a table whose only server is lost says so, and its rows come back with it', async () => {
  const page = await open(one, '/tables/test/lonely');
  await see(page, 'lonely row');
  await other.kill();
  const said = 'No server that has the rows is connected: bea. Start it, or repair the table.';
  await see(page, said);
  await page.reload();
  await see(page, said);
  assert.equal(await page.locator('.skeleton').count(), 0);
  for (const name of ['Find', 'Import rows', 'New row', 'Show']) assert.ok(await page.getByRole('button', { name, exact: true }).isDisabled(), name);
  assert.equal(await page.locator('[data-name=outage] a').count(), 2);
  await other.start();
  await eventually(() => text(page), (seen) => seen.includes('lonely row') && !seen.includes(said), 20_000);
  await one.run(r.db('test').tableDrop('lonely'));
  await done(page);
});

test('an answer that does not come is told', async () => {
  const page = await open(one, '/tables');
  await see(page, 'heroes');
  one.process.kill('SIGSTOP');
  try {
    await go(page, '/tables/test/heroes');
    await see(page, 'The server has not answered yet');
  } finally {
    one.process.kill('SIGCONT');
  }
  await page.click('main button:has-text("Try again")', { timeout: 1000 }).catch(() => {});
  await see(page, /\d+ rows/);
  await done(page);
});

test('a lost server is told, and its table is mended in four steps', async () => {
  const page = await open(one);
  await see(page, 'All is well');
  await other.kill();
  await see(page, /cannot serve everything|is not connected/);
  // What its removal would cost.
  await go(page, '/servers/bea');
  await page.click('button:has-text("Remove for good")');
  await page.waitForSelector('[data-name=cost]:has-text("test.heroes")');
  assert.match(await text(page, 'dialog'), /replicas of 1 shard in 1 table/);
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await page.click('nav a:has-text("Issues")');
  await see(page, 'test.heroes cannot be used');
  await page.locator('article', { hasText: 'test.heroes' }).locator('button:has-text("Repair")').click();
  await page.waitForSelector('dialog .actions button.primary:not([disabled])');
  await page.click('dialog .actions button.primary');
  await page.fill('[data-name=confirm]', 'heroes');
  await page.keyboard.press('Enter');
  await eventually(() => one.run(heroes.status()), (status) => status.status.ready_for_writes, 20_000);
  assert.equal(await one.run(heroes.count()), 100);
  await go(page, '/tables/test/heroes');
  await see(page, /\d+ rows/);
  assert.match(await text(page, '.head'), /Ready/);
  await done(page);
});

// How a table is kept: its write hook, and its replicas by tags.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, open, r, see, Server, text } = require('./harness.js');

let one, other;
const heroes = r.db('test').table('heroes');

before(async () => {
  one = await new Server(['--server-tag', 'default', '--server-tag', 'fast']).start();
  other = await new Server(['--server-tag', 'default', '--server-tag', 'slow', '--join', `localhost:${one.ports.cluster}`], 'bea').start();
  await one.run(r.db('test').tableCreate('heroes', { replicas: { fast: 1 }, primaryReplicaTag: 'fast' }));
  await one.run(heroes.wait());
  await one.run(heroes.insert(r.range(100).map((i) => ({ id: i, name: 'x' }))));
});
after(async () => { await closeBrowser(); await other.remove(); await one.remove(); });

const submit = (page) => page.click('dialog .actions button.primary');
const closed = (page) => page.waitForSelector('dialog', { state: 'detached' });

test('a write hook is tried on a row, set, seen and removed', async () => {
  const page = await open(one, '/tables/test/heroes/settings');
  await page.click('button:has-text("Set a hook")');
  await eventually(() => page.inputValue('[data-name=before]'), (row) => row.includes('"x"'));
  await page.fill('[data-name=function]', "(context, old, now) => now.merge({ by: r.add('the hook of ', context('primary_key').coerceTo('string')) })");
  await page.fill('[data-name=after]', '{"id": 7, "name": "y"}');
  await page.click('button:has-text("Try it")');
  await eventually(() => text(page, '[data-name=result]').catch(() => ''), (seen) => seen.includes('the hook of 7') && seen.includes('"y"'));
  assert.equal(await one.run(heroes.get(7)('name')), 'x');
  await submit(page);
  await closed(page);
  await see(page, /setWriteHook\(function/);
  assert.equal((await one.run(heroes.get(7).update({ name: 'z' }, { returnChanges: true }))).changes[0].new_val.by, 'the hook of 7');
  // It is shown as it can be typed again.
  await page.click('button:has-text("Change")');
  await page.click('button:has-text("Try it")');
  await eventually(() => text(page, '[data-name=result]').catch(() => ''), (seen) => seen.includes('the hook of'));
  await page.keyboard.press('Escape');
  await closed(page);
  const { function: binary } = await one.run(heroes.getWriteHook());
  await page.click('button:has-text("Remove")');
  await submit(page);
  await closed(page);
  assert.equal(await one.run(heroes.getWriteHook()), null);
  // The binary function is set as it is.
  await page.click('button:has-text("Set a hook")');
  await page.fill('[data-name=function]', JSON.stringify({ $reql_type$: 'BINARY', data: binary.toString('base64') }));
  await submit(page);
  await closed(page);
  assert.match((await one.run(heroes.getWriteHook())).query, /the hook of/);
  await done(page);
});

test('a wrong write hook says why, and is not set', async () => {
  await one.run(heroes.setWriteHook(null));
  const page = await open(one, '/tables/test/heroes/settings');
  await page.click('button:has-text("Set a hook")');
  for (const [wrong, said] of [['(a, b, c) => c.merge(', /[Uu]nexpected|missing/], ['(row) => row', /must expect 3 arguments/], ['(a, b, c) => c.merge({ at: r.now() })', /deterministic/], ['{"a": 1}', /neither a function/]]) {
    await page.fill('[data-name=function]', wrong);
    await submit(page);
    await eventually(() => text(page, 'dialog [role=alert]').catch(() => ''), (seen) => said.test(seen));
  }
  await page.fill('[data-name=function]', '(a, b, c) => { while (true) {} }');
  await page.click('button:has-text("Try it")');
  await eventually(() => text(page, 'dialog'), (seen) => seen.includes('within three seconds'));
  assert.equal(await one.run(heroes.getWriteHook()), null);
  await page.keyboard.press('Escape');
  await closed(page);
  await done(page);
});

test('replicas are placed by tags, and another server leads', async () => {
  const page = await open(one, '/tables/test/heroes/shards');
  await page.check('[data-name=by-tags]');
  await page.waitForSelector('[data-name=tags]');
  await page.fill('[aria-label="Replicas on servers with the tag default"]', '0');
  await page.fill('[aria-label="Replicas on servers with the tag fast"]', '1');
  await page.fill('[aria-label="Replicas on servers with the tag slow"]', '1');
  await see(page, 'With 2 replicas');
  // Both vote, until one of them does not.
  await page.uncheck('[aria-label="Replicas with the tag slow vote"]');
  await see(page, 'With 1 voting replica');
  await page.waitForSelector('[data-name=preview] .replica.added:has-text("does not vote")');
  await page.check('[aria-label="Replicas with the tag slow vote"]');
  await page.check('[aria-label="Servers with the tag slow lead"]');
  await page.waitForSelector('[data-name=preview] .replica.primary:has-text("bea")');
  await see(page, '1 replica will be copied');
  assert.equal((await one.run(heroes.config())).shards[0].replicas.length, 1, 'a preview changes nothing');
  await page.click('button:has-text("Apply")');
  await eventually(() => one.run(heroes.status()), ({ status, shards }) => status.all_replicas_ready && shards[0].primary_replicas[0] === 'bea' && shards[0].replicas.length === 2, 20_000);
  await page.click('[aria-label="Change the leader of shard 1"]');
  await page.selectOption('[data-name=leader]', 'ada');
  await submit(page);
  await closed(page);
  await eventually(() => one.run(heroes.status()), ({ shards }) => shards[0].primary_replicas[0] === 'ada', 20_000);
  // An impossible wish is told, and nothing changes.
  await page.fill('[aria-label="Replicas on servers with the tag fast"]', '5');
  await see(page, /there are only 1 servers with the tag `fast`/);
  await done(page);
});

test('a table that needs it is repaired on its own page', async () => {
  await other.kill();
  const page = await open(one, '/tables/test/heroes/shards');
  await see(page, 'Some shards have no majority');
  await page.click('button:has-text("Repair")');
  await page.waitForSelector('dialog .actions button.primary:not([disabled])');
  await submit(page);
  await page.fill('[data-name=confirm]', 'heroes');
  await page.keyboard.press('Enter');
  await eventually(() => one.run(heroes.status()), (status) => status.status.ready_for_writes, 20_000);
  assert.equal(await one.run(heroes.count()), 100);
  await done(page);
});

// Saved queries: private and shared, conflicts, limits.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

let server;
const saved = r.db('rethinkdb').table('_saved_queries');

before(async () => {
  server = await new Server().start();
  await server.run(r.db('rethinkdb').table('users').insert([{ id: 'bob', password: 'secret' }, { id: 'carol', password: 'secret' }]));
});
after(async () => { await closeBrowser(); await server.remove(); });

const submit = (page) => page.click('dialog .actions button.primary');
const closed = (page) => page.waitForSelector('dialog', { state: 'detached' });

async function saveAs(page, script, name, { share = false } = {}) {
  await query(page, script);
  await page.click('button:has-text("Save"):not(:has-text("Saved"))');
  await page.fill('[data-name=saved-name]', name);
  if (share) await page.check('dialog input[type=checkbox]');
  await submit(page);
  await closed(page);
}

test('a query is saved, renamed, changed, opened again and deleted', async () => {
  const page = await open(server, '/explorer');
  await saveAs(page, 'r.expr(1).add(1)', 'One and one');
  await see(page, 'One and one');
  assert.deepEqual(await server.run(saved.pluck('name', 'query', 'owner', 'is_shared')), [{ name: 'One and one', query: 'r.expr(1).add(1)', owner: 'admin', is_shared: false }]);
  await query(page, 'r.expr(1).add(2)');
  await see(page, 'One and one •');
  await page.click('button:has-text("Save"):not(:has-text("Saved"))');
  await eventually(() => server.run(saved.nth(0)('query')), (stored) => stored === 'r.expr(1).add(2)');
  await page.click('button:has-text("Saved")');
  await page.click('[aria-label="Rename One and one"]');
  await page.fill('dialog input', 'Three');
  await submit(page);
  await closed(page);
  await see(page, 'Three');
  await page.click('[aria-label="New query"]');
  const { id } = await server.run(saved.nth(0));
  await go(page, '/');
  await go(page, `/explorer?saved=${id}`);
  await eventually(() => text(page, '.cm-content').catch(() => ''), (seen) => seen.includes('r.expr(1).add(2)'));
  await page.click('button:has-text("Saved")');
  await page.click('[aria-label="Delete Three"]');
  await submit(page);
  await eventually(() => server.run(saved.count()), (count) => count === 0);
  await done(page);
});

test('two sessions that change a saved query lose nothing', async () => {
  const page = await open(server, '/explorer');
  await saveAs(page, 'r.expr("base")', 'Contested');
  await server.run(saved.update({ query: 'r.expr("theirs")' }));
  await query(page, 'r.expr("mine")');
  await page.click('button:has-text("Save"):not(:has-text("Saved"))');
  await page.waitForSelector('dialog:has-text("changed meanwhile")');
  for (const part of ['base', 'theirs', 'mine']) assert.match(await text(page, 'dialog'), new RegExp(`"${part}"`));
  assert.equal(await server.run(saved.nth(0)('query')), 'r.expr("theirs")');
  await submit(page);
  await eventually(() => server.run(saved.nth(0)('query')), (stored) => stored === 'r.expr("mine")');
  await server.run(saved.delete());
  await query(page, 'r.expr("mine again")');
  await page.click('button:has-text("Save"):not(:has-text("Saved"))');
  await page.waitForSelector('dialog:has-text("deleted meanwhile")');
  await submit(page);
  await eventually(() => server.run(saved.count()), (count) => count === 1);
  await server.run(saved.delete());
  await done(page);
});

test('rights: private queries are seen by their owner, shared ones by all, and only owners change them', async () => {
  const as = (user) => (term) => server.run(term, user, 'secret');
  const [bob, carol] = [as('bob'), as('carol')];
  assert.equal((await bob(saved.insert([{ name: 'mine', query: 'r.expr(1)' }, { name: 'ours', query: 'r.expr(2)', is_shared: true }]))).inserted, 2);
  assert.deepEqual(await carol(saved('name')), ['ours']);
  assert.deepEqual(await server.run(saved('name')), ['ours']);
  assert.match((await carol(saved.update({ name: 'hers' }))).first_error, /belongs to user `bob`/);
  assert.match((await carol(saved.delete())).first_error, /belongs to user `bob`/);
  assert.match((await carol(saved.insert({ name: 'x', query: 'y', owner: 'bob' }))).first_error, /owner of a saved query cannot be changed/);
  assert.equal((await server.run(saved.update({ name: 'of all' }))).replaced, 1);
  assert.match((await bob(saved.insert({ name: '', query: 'x' }))).first_error, /1 to 200 bytes/);
  assert.match((await bob(saved.insert({ name: 'large', query: 'x'.repeat(1 << 20) }))).first_error, /may have 1 MiB together/);
  assert.match((await bob(saved.insert({ name: 'odd', query: 'x', more: 1 }))).first_error, /Unexpected key/);
  await server.kill();
  await server.start();
  assert.equal(await bob(saved.count()), 2);
  await server.run(r.db('rethinkdb').table('users').get('bob').delete());
  assert.equal(await server.run(saved.count()), 0);
});

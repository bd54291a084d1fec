// The other pages, the palette, addresses, and interruptions.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

let server;
const system = (name) => r.db('rethinkdb').table(name);

before(async () => {
  server = await new Server().start();
  await server.run(r.db('test').tableCreate('heroes'));
  await server.run(r.dbCreate('shop'));
  await server.run(r.db('shop').tableCreate('orders'));
});
after(async () => { await closeBrowser(); await server.remove(); });

const submit = (page) => page.click('dialog .actions button.primary');
const closed = (page) => page.waitForSelector('dialog', { state: 'detached' });

test('the overview says how everything is', async () => {
  const page = await open(server);
  await see(page, 'All is well: all 2 tables are ready on 1 server.');
  await see(page, 'Server ready');
  await done(page);
});

test('a server is shown, and its tags are changed', async () => {
  const page = await open(server, '/servers');
  await see(page, 'Connected');
  await page.click('main a:has-text("ada")');
  await see(page, /Started as/);
  await page.click('button:has-text("Name, tags, cache")');
  await page.fill('dialog input >> nth=1', 'default, fast');
  await submit(page);
  await closed(page);
  assert.deepEqual((await server.run(system('server_config').nth(0))).tags, ['default', 'fast']);
  await done(page);
});

test('a running query is stopped', async () => {
  const slow = (await server.follow(r.db('test').table('heroes').changes())).ended;
  const page = await open(server, '/activity');
  await see(page, 'feed');
  await page.click('button:has-text("Stop")');
  assert.match(String(await slow), /terminated/);
  await see(page, 'No query runs now');
  await done(page);
});

test('there are no issues, and the log is filtered', async () => {
  const page = await open(server, '/issues');
  await see(page, 'There are no issues');
  await go(page, '/logs');
  await see(page, 'Server ready');
  await page.fill('[aria-label="Find in messages"]', 'Loading data');
  await eventually(() => text(page), (seen) => seen.includes('Loading data') && !seen.includes('Server ready'));
  await page.selectOption('select >> nth=0', 'error');
  await see(page, 'No message fits');
  await done(page);
});

test('a user who may read one database', async () => {
  const page = await open(server, '/users');
  await page.click('.head button.primary');
  await page.fill('[data-name=user]', 'carol');
  await page.fill('dialog input[type=password]', 'secret');
  await page.selectOption('dialog select', 'shop');
  await submit(page);
  await see(page, 'Rights of carol');
  assert.equal(await server.run(r.db('shop').table('orders').count(), 'carol', 'secret'), 0);
  await assert.rejects(server.run(r.db('test').table('heroes').count(), 'carol', 'secret'), /does not have the required `read`/);
  await page.selectOption('[aria-label="read everywhere"]', 'yes');
  await eventually(() => server.run(r.db('test').table('heroes').count(), 'carol', 'secret').catch(() => null), (count) => count === 0);
  await page.selectOption('[aria-label="read shop"]', 'no');
  await eventually(() => server.run(r.db('shop').table('orders').count(), 'carol', 'secret').catch((error) => error.message), (said) => /required `read`/.test(said));
  await page.click('.card button.danger:has-text("Delete")');
  await page.fill('[data-name=confirm]', 'carol');
  await submit(page);
  await eventually(() => server.run(system('users').count()), (count) => count === 1);
  await done(page);
});

test('the palette finds tables, servers and pages', async () => {
  const page = await open(server);
  await see(page, 'All is well');
  await page.keyboard.press('Control+k');
  await page.waitForSelector('.palette li:has-text("shop.orders")');
  await page.keyboard.type('orders');
  await page.keyboard.press('Enter');
  await see(page, 'The table is empty');
  await page.keyboard.press('Control+k');
  await page.keyboard.type('acti');
  await page.keyboard.press('Enter');
  await see(page, 'Indexes and copies');
  await page.keyboard.press('Control+k');
  await page.keyboard.press('Escape');
  await page.waitForSelector('.palette', { state: 'detached' });
  await done(page);
});

test('the addresses of RethinkDB lead to their pages', async () => {
  const page = await open(server);
  const id = (await server.run(system('table_config').filter({ name: 'orders' }).nth(0))).id;
  for (const [old, now] of [['dashboard', /#\/$/], ['tables', /#\/tables$/], ['servers', /#\/servers$/], ['dataexplorer', /#\/explorer$/], ['logs', /#\/logs$/], [`tables/${id}`, /#\/tables\/shop\/orders$/]]) {
    await page.goto(`${server.url}#${old}`);
    await eventually(() => page.url(), (url) => now.test(url));
  }
  await go(page, '/nowhere');
  await see(page, 'There is no such page');
  await done(page);
});

test('a server that comes back is used again, and no text is lost', async () => {
  const page = await open(server, '/explorer');
  await query(page, 'r.expr(2).add(3)');
  await see(page, '5');
  for (let round = 0; round < 3; round++) {
    await server.kill();
    await page.waitForSelector('.bar.bad', { timeout: 3000 });
    await server.start();
    await page.waitForSelector('.bar.bad', { state: 'detached', timeout: 5000 });
    assert.match(await text(page, '.cm-content'), /r\.expr\(2\)/);
  }
  await query(page, "r.db('test').table('heroes').count()");
  await see(page, '0');
  await done(page);
});

test('a page without permission says which', async () => {
  await server.run(system('users').insert({ id: 'dave', password: 'secret' }));
  await server.run(r.grant('dave', { read: false, connect: true }));
  await server.run(system('users').get('admin').update({ password: 'top' }));
  const page = await open(server, '/tables/shop/orders');
  await page.fill('input[autocomplete=username]', 'dave');
  await page.fill('input[type=password]', 'secret');
  await page.click('button.primary');
  await see(page, 'You may not see this');
  await see(page, /required `(config|read)` permission/);
  await done(page);
});

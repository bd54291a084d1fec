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
  assert.doesNotMatch(await text(page), /Listening on|Loading data/);
  // The charts begin with the first sample, and have no parts of one request.
  const labels = await eventually(() => page.evaluate(() => ({ ...document.querySelector('.plot')?.dataset })), ({ x, y }) => x && y, 25_000);
  assert.equal(labels.y, '0/s|2/s|4/s');
  const [first, last] = [labels.x.split('|')[0], labels.x.split('|').at(-1)].map((label) => label.split(':').reduce((sum, part) => sum * 60 + Number(part), 0));
  assert.ok(labels.x.split('|')[0].split(':').length === 3 && last - first <= 180, labels.x);
  await done(page);
});

test('the bar about the password is one line, and stays closed', async () => {
  const page = await open(server, '/', { width: 360 });
  await page.waitForSelector('.bar.line');
  assert.ok((await page.locator('.bar.line').boundingBox()).height <= 40);
  await page.click('.bar.line [aria-label^="Close"]');
  await page.waitForSelector('.bar.line', { state: 'detached' });
  await page.reload();
  await see(page, 'All is well');
  assert.equal(await page.locator('.bar.line').count(), 0);
  await done(page);
});

test('a server that is not there is one sentence', async () => {
  const page = await open(server, '/servers/zed');
  await see(page, 'There is no server of this name');
  assert.doesNotMatch(await text(page), /Log|Load|Remove/);
  await page.click('main a:has-text("All servers")');
  await see(page, /\d+ (s|min)\b/);
  assert.doesNotMatch(await text(page, 'main table tbody'), /\d\.\d s/);
  await done(page);
});

test('queries of the pages are not shown as activity, and messages end with their page', async () => {
  const page = await open(server, '/tables/shop/orders');
  await see(page, 'The table is empty');
  const feed = (await server.follow(r.db('test').table('heroes').changes())).ended;
  await go(page, '/activity');
  await see(page, 'feed');
  const rows = await open(server, '/tables/shop/orders');
  await see(rows, 'The table is empty');
  const queries = page.locator('section:has(h2:text-is("Queries")) td.query');
  await page.check('[data-name=own]');
  await eventually(() => queries.filter({ hasText: 'orders' }).count());
  await page.uncheck('[data-name=own]');
  await eventually(() => queries.count(), (count) => count === 1);
  assert.doesNotMatch(await text(page), /table\("orders"/);
  await page.click('button:has-text("Stop")');
  assert.match(String(await feed), /terminated/);
  await page.waitForSelector('.toast');
  await page.waitForTimeout(600);
  await go(page, '/tables');
  await page.waitForSelector('.toast', { state: 'detached', timeout: 1500 });
  await done(rows);
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
  await see(page, 'read shop');
  assert.match(await text(page, 'select[aria-label="read everywhere"]'), /not set \(no\)/);
  assert.match(await page.getAttribute('select[aria-label="read shop"]', 'class'), /yes/);
  await page.waitForSelector('button:has-text("Rights for a table")');
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

test('a user who may only read sees the own tables, and why the rest is not for them', async () => {
  const connection = await server.connect('admin', 'top');
  await system('users').insert({ id: 'erin', password: 'secret' }).run(connection);
  await r.db('shop').grant('erin', { read: true }).run(connection);
  await system('users').insert({ id: 'frank', password: 'secret' }).run(connection);
  await r.db('shop').grant('frank', { read: true, config: true }).run(connection);
  await connection.close();
  const as = async (user) => {
    const page = await open(server);
    await page.fill('input[autocomplete=username]', user);
    await page.fill('input[type=password]', 'secret');
    await page.click('button.primary');
    await page.waitForSelector('[data-name=readable]:has-text("shop.orders")');
    return page;
  };
  const page = await as('erin');
  assert.doesNotMatch(await text(page), /test\.heroes|You may not see this|required/);
  await go(page, '/tables');
  await page.waitForSelector('.head button.primary[disabled]');
  assert.match(await page.getAttribute('.head button.primary', 'title'), /config permission/);
  await page.waitForSelector('[aria-label="New table in shop"][disabled]');
  await go(page, '/users');
  await page.waitForSelector('.head button.primary[disabled][title*="rethinkdb.users"]');
  await done(page);
  // The right to configure one database is enough to make tables there.
  const other = await as('frank');
  await go(other, '/tables');
  await other.waitForSelector('.head button.primary:not([disabled])');
  await other.waitForSelector('[aria-label="New table in shop"]:not([disabled])');
  await other.waitForSelector('[aria-label="New table in test"][disabled]');
  await done(other);
});

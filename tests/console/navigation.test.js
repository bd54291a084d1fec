// Finding things, addresses that change, rights that are taken away, and what the console's own queries look like.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, r, see, Server, text } = require('./harness.js');

let server;
const system = (name) => r.db('rethinkdb').table(name);
const heroes = r.db('shop').table('heroes');

before(async () => {
  server = await new Server().start();
  await server.run(r.dbCreate('shop'));
  await server.run(r.db('shop').tableCreate('heroes'));
  await server.run(heroes.insert(r.range(50).map((i) => ({ id: i, city: 'Oslo' }))));
  await server.run(heroes.indexCreate('city'));
  await server.run(heroes.indexCreate('tags', (row) => row('tags').map((tag) => tag.upcase()), { multi: true }));
  await server.run(system('users').insert({ id: 'visitor', password: 'sesame' }));
  await server.run(system('_saved_queries').insert({ name: 'the old ones', query: "r.db('shop').table('heroes').count()", is_shared: true }));
});
after(async () => { await closeBrowser(); await server.remove(); });

async function openAs(user, address) {
  const page = await open(server, '/');
  await see(page, 'All is well');
  await page.click('[aria-label="Log out"]');
  await page.fill('input[autocomplete=username]', user);
  await page.fill('input[type=password]', 'sesame');
  await page.click('form button.primary');
  await eventually(async () => (await text(page, '.foot').catch(() => '')).includes(user));
  await go(page, address);
  return page;
}

test('the palette finds users, indexes, databases and saved queries', async () => {
  const page = await open(server);
  await see(page, 'All is well');
  for (const [typed, kind, wanted] of [['visitor', 'User', 'Rights of visitor'], ['heroes.city', 'Index', 'Ordered by'], ['shop', 'Database', 'heroes'], ['old ones', 'Saved query', 'Explorer']]) {
    await page.keyboard.press('Control+k');
    await page.waitForSelector('.palette');
    await page.keyboard.type(typed);
    await page.click(`.palette li:has(.dim:text-is("${kind}"))`);
    await see(page, wanted);
  }
  assert.match(page.url(), /explorer/);
  await done(page);
});

test('controls follow the address, also by the back button', async () => {
  const page = await open(server, '/tables/shop/heroes');
  await see(page, '50 rows');
  await go(page, '/tables/shop/heroes?index=city&field=id&is=7');
  await see(page, /\b1 row\b/);
  assert.equal(await page.inputValue('.filters select'), 'city');
  await page.goBack();
  await see(page, '50 rows');
  assert.equal(await page.inputValue('.filters select'), '');
  await go(page, '/logs?level=error');
  await see(page, 'No message fits');
  await go(page, '/logs?find=ready');
  await see(page, 'Server ready');
  assert.equal(await page.inputValue('[aria-label="Find in messages"]'), 'ready');
  await page.goBack();
  await see(page, 'No message fits');
  await go(page, '/tables?find=nothing');
  await see(page, 'No table has this name');
  await go(page, '/tables');
  await see(page, 'heroes');
  await done(page);
});

test('logs are filtered by the server', async () => {
  const page = await open(server, '/logs');
  await see(page, 'Server ready');
  await page.fill('[aria-label="Find in messages"]', 'SERVER READY, "');
  await eventually(() => page.locator('.log tbody tr').count(), (count) => count === 1);
  await page.fill('[aria-label="Find in messages"]', 'a(b.*');
  await see(page, 'No message fits');
  await done(page);
});

test('a right that is taken away closes what it opened, and the text names right and table', async () => {
  await server.run(heroes.grant('visitor', { read: true }));
  const page = await openAs('visitor', '/tables/shop/heroes');
  await see(page, '50 rows');
  await see(page, 'needs the write permission for the table shop.heroes');
  await go(page, '/tables/shop/heroes/indexes');
  await see(page, 'You need the config permission for the table shop.heroes');
  assert.equal(await page.locator('[aria-label="Drop city"]').count(), 0);
  assert.equal(await page.locator('.bar:has-text("no password")').count(), 0);
  await go(page, '/tables/shop/heroes');
  await see(page, '50 rows');
  await server.run(heroes.grant('visitor', { read: null }));
  await see(page, 'need the read permission for the table shop.heroes');
  assert.equal(await page.locator('.grid').count(), 0);
  await go(page, '/logs');
  await see(page, 'need the read permission for the table rethinkdb.logs');
  await done(page);
});

test('queries of the console itself are hidden, until one asks for them', async () => {
  const other = await open(server, '/tables/shop/heroes');
  await see(other, '50 rows');
  const feed = (await server.follow(heroes.changes())).ended.catch(() => {});
  const page = await open(server, '/activity');
  await page.waitForSelector('td.query:has-text("heroes")');
  assert.equal(await page.locator('td.query .badge:text-is("console")').count(), 0);
  assert.deepEqual(await page.locator('section >> nth=0 >> tbody tr td.query').allInnerTexts(), ['feedr.db("shop").table("heroes").changes()']);
  await page.check('[data-name=own]');
  await page.waitForSelector('td.query:has-text("console")');
  await page.uncheck('[data-name=own]');
  await page.click('button:has-text("Stop")');
  await feed;
  await done(page);
  await done(other);
});

test('definitions of indexes are read as functions', async () => {
  const page = await open(server, '/tables/shop/heroes/indexes');
  await page.waitForSelector('td code:text-is("row(\\"city\\")")');
  await eventually(() => text(page), (seen) => seen.includes('row("tags").map(') && !seen.includes('multi: true'));
  await done(page);
});

test('a table that is gone is not ready', async () => {
  await server.run(r.db('shop').tableCreate('brief'));
  const page = await open(server, '/tables/shop/brief');
  await see(page, 'Ready');
  await server.run(r.db('shop').tableDrop('brief'));
  await see(page, 'was dropped, renamed or moved');
  assert.doesNotMatch(await text(page, '.head'), /Ready/);
  await done(page);
});

test('the squares of all tables are one stop of the keyboard', async () => {
  await server.run(r.expr(['a', 'b', 'c']).forEach((name) => r.db('shop').tableCreate(name)));
  const page = await open(server, '/servers');
  await eventually(() => page.locator('.map a').count(), (count) => count === 4);
  assert.equal(await page.locator('.map a[tabindex="0"]').count(), 1);
  await page.focus('.map a[tabindex="0"]');
  await page.keyboard.press('End');
  const last = await page.evaluate(() => document.activeElement.getAttribute('aria-label'));
  await page.keyboard.press('ArrowLeft');
  assert.notEqual(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), last);
  assert.equal(await page.locator('.map a[tabindex="0"]').count(), 1);
  await page.keyboard.press('Enter');
  await see(page, 'Shards and replicas');
  await done(page);
});

test('dropping a table is in sight at 360 pixels', async () => {
  const page = await open(server, '/tables', { width: 360 });
  await page.waitForSelector('[aria-label="Drop heroes"]');
  const box = await page.locator('[aria-label="Drop heroes"]').boundingBox();
  assert.ok(box.x + box.width <= 360, `it ends at ${box.x + box.width}`);
  await done(page);
});

// Three servers of which one is lost: the map of tables, the sentence of the overview, and the issues.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, r, see, Server, text } = require('./harness.js');

let one, other, third;
const shop = r.db('shop');

before(async () => {
  one = await new Server().start();
  other = await new Server(['--server-tag', 'default', '--server-tag', 'old', '--join', `localhost:${one.ports.cluster}`], 'bea').start();
  third = await new Server(['--server-tag', 'default', '--server-tag', 'new', '--join', `localhost:${one.ports.cluster}`], 'cleo').start();
  await one.run(r.dbCreate('shop'));
  await one.run(shop.tableCreate('orders', { replicas: 3 }));
  await one.run(shop.tableCreate('empty', { replicas: { old: 1 }, primaryReplicaTag: 'old' }));
  await one.run(shop.tableCreate('prices', { replicas: { new: 1 }, primaryReplicaTag: 'new' }));
  await one.run(shop.wait());
});
after(async () => { await closeBrowser(); for (const server of [third, other, one]) await server.remove(); });

test('the map has a column for each table, gaps, and tells leaders from replicas', async () => {
  const page = await open(one, '/servers');
  await eventually(() => page.locator('.map a').count(), (count) => count === 5);
  assert.deepEqual(await page.locator('.map thead th').allInnerTexts(), ['shop.empty', 'shop.orders', 'shop.prices']);
  const rows = await page.locator('.map tbody tr').evaluateAll((found) => found.map((row) => [...row.children].map((cell) => cell.querySelector('a') ? 'table' : cell.textContent)));
  assert.deepEqual(rows, [['ada', '', 'table', ''], ['bea', 'table', 'table', ''], ['cleo', '', 'table', 'table']]);
  assert.equal(await page.locator('.map a.leads').count(), 3);
  assert.match(await text(page, '[data-name=legend]'), /leads[\s\S]*replica[\s\S]*not ready/);
  // The arrow keys pass over the gaps.
  await page.focus('[aria-label^="shop.orders on bea"]');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowRight');
  assert.match(await page.evaluate(() => document.activeElement.getAttribute('aria-label')), /^shop\.prices on cleo: leads$/);
  assert.equal(await page.locator('.map a[tabindex="0"]').count(), 1);
  // The same tables are one under the other.
  const lefts = await page.locator('.map a[aria-label^="shop.orders"]').evaluateAll((found) => found.map((cell) => cell.getBoundingClientRect().left));
  assert.equal(new Set(lefts).size, 1);
  await done(page);
});

test('tables that would not survive a server are told while all is well', async () => {
  const page = await open(one);
  await see(page, 'All is well: all 3 tables are ready on 3 servers. 2 tables would stop if their server did.');
  await done(page);
});

test('a lost server is one sentence and one issue, which leads to its removal', async () => {
  const page = await open(one);
  await see(page, 'All is well');
  await other.kill();
  await see(page, '1 table cannot be used, 1 has fewer replicas than it should, and bea is not connected.');
  await page.click('nav a:has-text("Issues")');
  await see(page, 'bea is not connected: 2 tables are affected');
  assert.equal(await page.locator('article').count(), 1);
  assert.match(await text(page, 'article'), /shop\.empty\s+cannot be used[\s\S]*shop\.orders\s+has a replica too few/);
  assert.match(await text(page, 'nav'), /Issues\s*1\b/);
  await page.click('article a:has-text("Remove bea")');
  await page.waitForSelector('[data-name=cost]:has-text("shop.empty")');
  assert.match(await text(page, 'dialog'), /shop\.empty has no other replica/);
  await page.keyboard.press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.match(page.url(), /#\/servers\/bea$/);
  await go(page, '/servers');
  await page.waitForSelector('.map a.bad[aria-label="shop.empty on bea: leads, not ready"]');
  // Without the other table the heading names the one that is left.
  await one.run(shop.tableDrop('empty'));
  await go(page, '/issues');
  await see(page, 'shop.orders has a replica too few');
  await done(page);
});

test('more tables than have room for their names are drawn', async () => {
  const names = Array.from({ length: 40 }, (_, i) => `t${String(i).padStart(2, '0')}`);
  for (const name of names) await one.run(shop.tableCreate(name, { replicas: { new: 1 }, primaryReplicaTag: 'new' }));
  const page = await open(one, '/servers');
  await page.waitForSelector('canvas[aria-label^="shop.orders on ada"]');
  await page.focus('canvas');
  for (const key of ['ArrowDown', 'ArrowDown', 'End']) await page.keyboard.press(key);
  assert.equal(await text(page, '[data-name=focused]'), 'shop.t39 on cleo: leads');
  assert.ok(await page.evaluate(() => document.querySelectorAll('*').length) <= 1500);
  await page.keyboard.press('Enter');
  await see(page, 'Shards and replicas');
  assert.match(page.url(), /tables\/shop\/t39\/shards$/);
  await done(page);
});

// Each page, in both themes and at two widths: axe finds nothing, and only tables and code scroll sideways.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, modules, open, query, r, see, Server, text } = require('./harness.js');

const axe = fs.readFileSync(modules.resolve('axe-core/axe.min.js'), 'utf8');
const PAGES = ['/', '/tables', '/tables/test/heroes', '/tables/test/heroes/indexes', '/tables/test/heroes/shards', '/tables/test/heroes/settings', '/tables/test/none', '/explorer', '/servers', '/servers/ada', '/activity', '/issues', '/logs', '/users', '/users/bob', '/backups', '/nowhere'];
let server;

before(async () => {
  server = await new Server().start();
  await server.run(r.db('test').tableCreate('heroes'));
  await server.run(r.db('test').table('heroes').indexCreate('name'));
  await server.run(r.db('test').table('heroes').insert(r.range(50).map((i) => ({ id: i, name: 'x', many: r.range(20).coerceTo('array'), when: r.now() }))));
  await server.run(r.db('rethinkdb').table('users').insert({ id: 'bob', password: 'secret' }));
  await server.run(r.grant('bob', { read: true }));
});
after(async () => { await closeBrowser(); await server.remove(); });

async function check(page, what) {
  const found = await page.evaluate(`${axe};axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa']})`);
  const violations = found.violations.map((one) => `${one.id}: ${one.nodes.slice(0, 3).map((node) => `${node.target} ${node.failureSummary.split('\n').slice(1, 3).join(' ')}`).join(' | ')}`);
  assert.deepEqual(violations, [], what);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
  assert.ok(wide <= 0, `${what} scrolls sideways by ${wide}`);
}

for (const theme of ['light', 'dark']) {
  for (const width of [360, 1280]) {
    test(`pages are accessible, ${theme}, ${width} pixels wide`, async () => {
      const page = await open(server, '/', { theme, width });
      for (const address of PAGES) {
        await go(page, address);
        await eventually(() => page.locator('main .skeleton').count(), (count) => count === 0);
        await check(page, address);
      }
      await done(page);
    });
    test(`dialogs and results are accessible, ${theme}, ${width} pixels wide`, async () => {
      const page = await open(server, '/tables?new=table', { theme, width });
      await page.waitForSelector('dialog');
      await check(page, 'new table');
      await page.keyboard.press('Escape');
      await go(page, '/tables/test/heroes');
      await page.click('[aria-label="Open 1"]');
      await check(page, 'a row');
      await page.keyboard.press('Escape');
      await page.locator('td.cell[data-field=name]').first().dblclick();
      await check(page, 'a cell that is edited');
      await page.keyboard.press('Escape');
      await page.click('[data-name=columns]');
      await check(page, 'the columns');
      await page.keyboard.press('Escape');
      await page.click('button:has-text("Import")');
      await page.setInputFiles('dialog input[type=file]', { name: 'wrong.csv', mimeType: 'text/plain', buffer: Buffer.from('id,name,name\n1,a,b\n,c,d\n') });
      await page.waitForSelector('[data-name=errors]');
      await page.waitForSelector('[data-name=preview]');
      await check(page, 'an import');
      await page.keyboard.press('Escape');
      await go(page, '/tables/test/heroes/settings');
      await page.click('button:has-text("Set a hook")');
      await page.click('button:has-text("Try it")');
      await page.waitForSelector('[data-name=result]');
      await check(page, 'a write hook');
      await page.keyboard.press('Escape');
      await go(page, '/tables/test/heroes/shards');
      await page.check('[data-name=by-tags]');
      await page.waitForSelector('[data-name=tags]');
      await check(page, 'tags');
      await go(page, '/servers/ada');
      await page.click('button:has-text("Remove…")');
      await page.waitForSelector('[data-name=moves]');
      await check(page, 'the removal of a server');
      await page.keyboard.press('Escape');
      await page.keyboard.press('Control+k');
      await page.waitForSelector('.palette');
      await check(page, 'the palette');
      await page.keyboard.press('Escape');
      await go(page, '/explorer');
      await query(page, "r.db('test').table('heroes')");
      await see(page, '50 rows');
      await check(page, 'a tree');
      await page.click('.segments button:has-text("Table")');
      await check(page, 'a table');
      await page.click('.segments button:has-text("Chart")');
      await page.waitForSelector('[data-name=chart]');
      await check(page, 'a chart');
      await page.click('button:has-text("Explain")');
      await page.waitForSelector('[data-name=plan]');
      await check(page, 'a plan');
      await query(page, "r.db('test').table('heroes')");
      await see(page, '50 rows');
      await page.click('.head button:has-text("Saved")');
      await page.waitForSelector('[data-name=saved]');
      await check(page, 'saved queries');
      await page.click('.segments button:has-text("Tree")');
      await query(page, 'r.table(');
      await eventually(() => text(page, '[role=alert]').catch(() => ''), Boolean);
      await check(page, 'an error');
      await done(page);
    });
  }
}

test('the login is accessible', async () => {
  await server.run(r.db('rethinkdb').table('users').get('admin').update({ password: 'top' }));
  for (const theme of ['light', 'dark']) {
    const page = await open(server, '/', { theme, width: 360 });
    await page.waitForSelector('input[autocomplete=username]');
    await check(page, `login, ${theme}`);
    await done(page);
  }
});

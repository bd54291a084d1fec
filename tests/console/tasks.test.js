// The ten tasks from the overview: how many clicks and fields each takes, and that all go without a mouse.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, open, r, see, Server, text } = require('./harness.js');

let server;
const heroes = r.db('shop').table('heroes');
const system = (name) => r.db('rethinkdb').table(name);

before(async () => {
  server = await new Server().start();
  await server.run(r.dbCreate('shop'));
  await server.run(r.db('shop').tableCreate('heroes'));
  await server.run(heroes.insert(r.range(100).map((i) => ({ id: i, name: 'Ada', city: 'Oslo' }))));
});
after(async () => { await closeBrowser(); await server.remove(); });

// Counts what a person does with a mouse and with fields.
function hand(page) {
  let steps = 0;
  return {
    click: async (selector) => { steps += 1; await page.click(selector); },
    doubleClick: async (selector) => { steps += 1; await page.dblclick(selector); },
    fill: async (selector, value) => { steps += 1; await page.fill(selector, value); },
    choose: async (selector, value) => { steps += 1; await page.selectOption(selector, value); },
    type: async (value) => { steps += 1; await page.keyboard.insertText(value); },
    steps: () => steps,
  };
}

async function task(name, most, work) {
  const page = await open(server);
  await see(page, 'All is well');
  const by = hand(page);
  await work(page, by);
  assert.ok(by.steps() <= most, `${name}: ${by.steps()} steps, at most ${most}`);
  await done(page);
}

const nav = (name) => `nav a:has-text("${name}")`;

test('rows of a table in two steps, a row by its key in three, a changed field in four', async () => {
  await task('rows', 2, async (page, by) => {
    await by.click(nav('Tables'));
    await by.click('main a:has-text("heroes")');
    await see(page, 'Ada');
  });
  await task('key', 3, async (page, by) => {
    await by.click(nav('Tables'));
    await by.click('main a:has-text("heroes")');
    await by.fill('[data-name=key]', '42');
    await page.keyboard.press('Enter');
    await eventually(() => page.inputValue('[data-name=json]'), (json) => json.includes('42'));
  });
  await task('field', 4, async (page, by) => {
    await by.click(nav('Tables'));
    await by.click('main a:has-text("heroes")');
    await by.doubleClick('td[data-field=city] >> nth=0');
    await by.type('Bergen');
    await page.keyboard.press('Enter');
    await eventually(() => server.run(heroes.get(0)), (row) => row.city === 'Bergen');
  });
});

test('a query in two steps', async () => {
  await task('query', 2, async (page, by) => {
    await by.click(nav('Explorer'));
    await page.waitForSelector('.cm-focused');
    await by.type('r.expr(20).add(3)');
    await page.keyboard.press('Shift+Enter');
    await see(page, '23');
  });
});

test('a table in three steps, an index in four, another layout in four', async () => {
  await task('table', 3, async (page, by) => {
    await by.click(nav('Tables'));
    await by.click('.head button.primary');
    await by.fill('[data-name=table]', 'villains');
    await page.keyboard.press('Enter');
    await see(page, 'The table is empty');
  });
  await task('index', 4, async (page, by) => {
    await by.click(nav('Tables'));
    await by.click('main a:has-text("heroes")');
    await by.click('a:has-text("Indexes")');
    await by.fill('[data-name=field]', 'city');
    await page.keyboard.press('Enter');
    await see(page, 'Ready');
  });
  await task('layout', 4, async (page, by) => {
    await by.click(nav('Tables'));
    await by.click('[aria-label="Shards of heroes: 1"]');
    await by.fill('[data-name=shards]', '2');
    await page.waitForSelector('[data-name=preview]');
    await by.click('button:has-text("Apply")');
    await eventually(() => server.run(heroes.config()), (config) => config.shards.length === 2);
  });
});

test('a stopped query in three steps, a user who may read one database in five', async () => {
  const slow = (await server.follow(heroes.changes())).ended;
  await task('stop', 3, async (page, by) => {
    await by.click(nav('Activity'));
    await by.click('button:has-text("Stop")');
    assert.match(String(await slow), /terminated/);
  });
  await task('user', 5, async (page, by) => {
    await by.click(nav('Users'));
    await by.click('.head button.primary');
    await by.fill('[data-name=user]', 'erin');
    await by.choose('dialog select', 'shop');
    await by.fill('dialog input[type=password]', 'secret');
    await page.keyboard.press('Enter');
    await see(page, 'Rights of erin');
    assert.equal(await server.run(heroes.count(), 'erin', 'secret'), 100);
  });
});

test('everything goes without a mouse', async () => {
  const page = await open(server);
  await see(page, 'All is well');
  const press = (...keys) => keys.reduce((before_, key) => before_.then(() => page.keyboard.press(key)), Promise.resolve());
  const tabTo = async (selector) => {
    for (let i = 0; i < 80; i++) {
      if (await page.evaluate((wanted) => document.activeElement?.matches(wanted) ?? false, selector)) return;
      await page.keyboard.press('Tab');
    }
    throw new Error(`Tab does not lead to ${selector}`);
  };
  const palette = async (words) => { await press('Control+k'); await page.waitForSelector('.palette'); await page.waitForSelector('.palette li:has-text("heroes")'); await page.keyboard.type(words); await press('Enter'); };
  await palette('heroes');
  await see(page, 'Ada');
  await tabTo('td[data-field=id]');
  await press('ArrowDown', 'ArrowRight', 'Enter');
  await page.keyboard.type('Lyon');
  await press('Enter');
  await eventually(() => server.run(heroes.get(1)), (row) => row.city === 'Lyon');
  await palette('explorer');
  await page.waitForSelector('.cm-focused');
  await page.keyboard.insertText('r.expr(20).add(4)');
  await press('Shift+Enter');
  await see(page, '24');
  // The first one may close the completions.
  await press('Escape', 'Escape', 'Tab');
  await eventually(() => page.evaluate(() => !document.activeElement.closest('.cm-editor')));
  await palette('tables');
  await tabTo('.head button.primary');
  await press('Enter');
  await page.waitForSelector('dialog');
  await page.keyboard.type('by_key');
  await press('Enter');
  await see(page, 'The table is empty');
  await palette('users');
  await tabTo('.head button.primary');
  await press('Enter');
  await page.waitForSelector('dialog');
  await press('Escape');
  await page.waitForSelector('dialog', { state: 'detached' });
  await eventually(() => page.evaluate(() => document.activeElement.textContent), (focused) => /New user/.test(focused));
  await done(page);
});

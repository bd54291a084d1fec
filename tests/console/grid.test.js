// The grid of rows: columns, conditions, the keyboard, fields that are deleted.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

let server;
const wide = r.db('shop').table('wide');
const people = r.db('shop').table('people');

before(async () => {
  server = await new Server().start();
  await server.run(r.dbCreate('shop'));
  for (const name of ['wide', 'people']) await server.run(r.db('shop').tableCreate(name));
  const fields = Object.fromEntries(Array.from({ length: 60 }, (_, i) => [`f${String(i).padStart(2, '0')}`, i]));
  await server.run(wide.insert(r.range(300).map((i) => r.expr(fields).merge({ id: i }).merge(r.branch(i.ge(250), { late: i }, {})))));
  await server.run(people.insert(r.range(500).map((i) => ({ id: i, name: r.expr('Person ').add(i.coerceTo('string')), age: i.mod(90), tags: r.branch(i.mod(100).eq(0), ['vip', 'old'], ['new']), address: { no: i } }))));
  await server.run(people.insert([{ id: 500, name: 'a.*b', zip: '10001' }, { id: 501, name: 'a+b', zip: 10002 }, { id: 502, zip: null }]));
});
after(async () => { await closeBrowser(); await server.remove(); });

const heads = (page) => page.locator('.grid th[scope=col]').allInnerTexts();
const shown = (page, wanted) => eventually(() => text(page, '[data-name=shown]').catch(() => ''), (seen) => (typeof wanted === 'string' ? seen === wanted : wanted.test(seen)));

test('columns that are not shown are counted, and can be chosen', async () => {
  const page = await open(server, '/tables/shop/wide');
  await page.waitForSelector('[data-name=columns]:has-text("21 more columns")');
  assert.equal((await heads(page)).length, 40);
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) <= 1500);
  // A field that only later rows have.
  await eventually(async () => {
    await page.evaluate(() => { const grid = document.querySelector('.grid'); grid.scrollTop = grid.scrollHeight; });
    return text(page, '[data-name=columns]');
  }, (seen) => seen.startsWith('22 more'));
  await page.click('[data-name=columns]');
  await page.click('dialog button:has-text("None")');
  await page.fill('dialog input[type=search]', 'f5');
  await page.check('dialog label:has-text("f59")');
  await page.fill('dialog input[type=search]', 'late');
  await page.check('dialog label:has-text("late")');
  await page.click('dialog button:has-text("Close")');
  assert.deepEqual(await heads(page), ['id', 'f59', 'late']);
  await page.reload();
  await page.waitForSelector('.grid tbody tr:not(.pad)');
  await eventually(() => heads(page), (seen) => seen.join() === 'id,f59');
  // Of this table alone.
  await go(page, '/tables/shop/people');
  await eventually(() => heads(page), (seen) => seen.includes('age'));
  await go(page, '/tables/shop/wide');
  await page.click('[data-name=columns]');
  await page.click('dialog button:has-text("As at first")');
  await page.click('dialog button:has-text("Close")');
  assert.equal((await heads(page)).length, 40);
  await done(page);
});

test('columns of a result are chosen, too', async () => {
  const page = await open(server, '/explorer');
  await query(page, "r.db('shop').table('wide').orderBy({index: 'id'}).coerceTo('array')");
  await see(page, '300 elements');
  await page.click('.segments button:has-text("Table")');
  await page.waitForSelector('[data-name=columns]:has-text("22 more columns")');
  await page.click('[data-name=columns]');
  await page.click('dialog button:has-text("The first 60")');
  await page.click('dialog button:has-text("Close")');
  assert.equal((await heads(page)).length, 60);
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) <= 1600);
  await page.click('.segments button:has-text("Tree")');
  await done(page);
});

test('rows between two bounds, and with a condition', async () => {
  const page = await open(server, '/tables/shop/people?from=100&to=109');
  await shown(page, '10 rows');
  await go(page, '/tables');
  const condition = async (field, operator, value, rows) => {
    await page.fill('label:has-text("where") input', field);
    await page.selectOption('[data-name=operator]', operator);
    if (value !== null) await page.fill('[data-name=value]', value);
    await page.click('.filters button:has-text("Show")');
    await shown(page, rows);
  };
  await go(page, '/tables/shop/people');
  await shown(page, /so far/);
  await condition('age', 'lt', '2', '12 rows');
  await condition('age', 'ge', '88', '10 rows');
  await condition('name', 'contains', '.*', '1 row');
  await condition('name', 'contains', 'PERSON 49', '11 rows');
  await condition('tags', 'contains', 'vip', '5 rows');
  await condition('address.no', 'le', '3', '4 rows');
  await condition('zip', 'exists', null, '2 rows');
  await condition('zip', 'ge', '10000', '2 rows');
  await condition('zip', 'ne', '10001', '1 row');
  assert.match(page.url(), /field=zip&op=ne&is=10001/);
  await page.reload();
  await shown(page, '1 row');
  await condition('age', 'missing', null, '3 rows');
  await page.click('.filters button:has-text("Clear")');
  await shown(page, /so far/);
  await page.fill('label:has-text("to ") input', '4');
  await page.keyboard.press('Enter');
  await shown(page, '5 rows');
  await done(page);
});

test('the grid is one stop of the Tab key, and arrows reach all of its cells', async () => {
  const page = await open(server, '/tables/shop/people');
  await page.waitForSelector('.grid tbody tr:not(.pad)');
  assert.equal(await page.locator('.grid [tabindex="0"], .grid button:not([tabindex]), .grid input:not([tabindex])').count(), 1);
  const at = () => page.evaluate(() => { const cell = document.activeElement.closest('td'); return cell ? `${Number(cell.parentElement.getAttribute('aria-rowindex')) - 2}/${cell.cellIndex}` : document.activeElement.tagName; });
  const press = async (key, wanted) => { await page.keyboard.press(key); await eventually(at, (seen) => seen === wanted); };
  await page.focus('[data-name=columns]');
  await press('Tab', '0/2');
  await press('ArrowLeft', '0/1');
  await press('ArrowRight', '0/2');
  await press('ArrowDown', '1/2');
  await press('End', '1/6');
  await press('Home', '1/0');
  await page.keyboard.press('Space');
  await page.waitForSelector('button:has-text("Delete 1")');
  // Beyond the rows that are in the page, and beyond those that are read.
  await page.keyboard.press('Control+End');
  for (let row = Number((await at()).split('/')[0]); row < 60; row++) { await eventually(() => text(page, '[data-name=shown]'), (seen) => parseInt(seen, 10) > row + 1); await press('ArrowDown', `${row + 1}/6`); }
  await press('Control+Home', '0/0');
  await page.keyboard.press('Tab');
  assert.ok(!(await at()).includes('/'));
  await done(page);
});

test('a field is deleted from its cell, and had back', async () => {
  const page = await open(server, '/tables/shop/people?from=10&to=20');
  const cell = page.locator('tr[aria-rowindex="2"] td[data-field=age]');
  await cell.focus();
  await page.keyboard.press('Delete');
  await page.waitForSelector('.toast:has-text("The field age is deleted")');
  assert.equal(await server.run(people.get(10).hasFields('age')), false);
  await page.click('.toast button:has-text("Undo")');
  await eventually(() => server.run(people.get(10)('age').default(null)), (age) => age === 10);
  await page.locator('tr[aria-rowindex="3"] td[data-field=age]').dblclick();
  await page.click('[aria-label="Delete the field age"]');
  await eventually(() => server.run(people.get(11).hasFields('age')), (has) => !has);
  assert.deepEqual(await server.run(people.get(11).keys()), ['address', 'id', 'name', 'tags']);
  // A field that has changed meanwhile stays.
  await page.locator('tr[aria-rowindex="4"] td[data-field=age]').dblclick();
  await server.run(people.get(12).update({ age: 77 }));
  await page.click('[aria-label="Delete the field age"]');
  await page.waitForSelector('dialog:has-text("The row has changed meanwhile")');
  assert.equal(await server.run(people.get(12)('age')), 77);
  await page.keyboard.press('Escape');
  await done(page);
});

test('editors of long texts open at their beginning', async () => {
  const page = await open(server, '/tables/shop/wide?from=5');
  await page.click('[aria-label="Open 5"]');
  const field = page.locator('[data-name=json]');
  assert.deepEqual(await field.evaluate((one) => [one.selectionStart, one.scrollTop, document.activeElement === one]), [0, 0, true]);
  await page.keyboard.press('Escape');
  await go(page, `/explorer?query=${encodeURIComponent(Array.from({ length: 100 }, (_, i) => `// line ${i}`).join('\n'))}`);
  await page.waitForSelector('.cm-line:has-text("line 3")');
  assert.equal(await page.evaluate(() => document.querySelector('.cm-scroller').scrollTop), 0);
  assert.equal(await page.evaluate(() => scrollY), 0);
  await page.keyboard.type('r.now()');
  assert.match(await page.locator('.cm-line').first().innerText(), /^r\.now\(\)/);
  await done(page);
});

// Tables and their rows.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, r, see, Server, text } = require('./harness.js');

let server;
const heroes = r.db('shop').table('heroes');
const rows = (count) => r.range(count).map((i) => ({ id: i, name: r.expr('Hero ').add(i.coerceTo('string')), city: r.branch(i.mod(2).eq(0), 'Oslo', 'London'), address: { street: 'High Street', no: i } }));

before(async () => {
  server = await new Server().start();
  await server.run(r.dbCreate('shop'));
  await server.run(r.db('shop').tableCreate('heroes'));
  await server.run(heroes.insert(rows(2000)));
});
after(async () => { await closeBrowser(); await server.remove(); });

const submit = (page) => page.click('dialog .actions button.primary');
const closed = (page) => page.waitForSelector('dialog', { state: 'detached' });

async function openAs(user) {
  const page = await open(server, '/');
  await see(page, 'All is well');
  await page.click('[aria-label="Log out"]');
  await page.fill('input[autocomplete=username]', user);
  await page.fill('input[type=password]', 'sesame');
  await page.click('form button.primary');
  await eventually(async () => (await text(page, '.foot').catch(() => '')).includes(user));
  return page;
}

test('databases and tables are made, renamed, moved and dropped', async () => {
  const page = await open(server, '/tables');
  await page.click('.head button:has-text("Database")');
  await page.fill('dialog input', 'attic');
  await submit(page);
  await closed(page);
  await page.click('.head button.primary');
  await page.fill('[data-name=table]', 'boxes');
  await page.selectOption('dialog select', 'attic');
  await submit(page);
  await see(page, 'The table is empty');
  await go(page, '/tables');
  await page.click('[aria-label="Rename boxes"]');
  await page.fill('dialog input', 'crates');
  await submit(page);
  await closed(page);
  await page.click('[aria-label="Move crates"]');
  await page.selectOption('dialog select', 'shop');
  await submit(page);
  await closed(page);
  await eventually(() => server.run(r.db('shop').tableList()), (names) => names.includes('crates'));
  await page.click('[aria-label="Drop crates"]');
  assert.ok(await page.isDisabled('dialog .actions button.primary'), 'the name is not typed yet');
  const field = page.locator('[data-name=confirm]');
  assert.equal(await field.evaluate((input) => getComputedStyle(input).fontWeight), '400');
  assert.ok((await page.locator('label.field:has([data-name=confirm]) > span').boundingBox()).height < 30, 'the question is one line');
  await field.fill('crates');
  await submit(page);
  await closed(page);
  assert.deepEqual(await server.run(r.db('shop').tableList()), ['heroes']);
  await done(page);
});

test('a table that is refused says why', async () => {
  const page = await open(server, '/tables?new=table');
  await page.fill('[data-name=table]', 'a b/c');
  await submit(page);
  await page.waitForSelector('dialog [role=alert]:has-text("Table name `a b/c` invalid")');
  await page.keyboard.press('Escape');
  await closed(page);
  await done(page);
});

test('rows come in the order of the key, and all are reached', async () => {
  const page = await open(server, '/tables/shop/heroes');
  await see(page, 'Hero 3');
  await eventually(async () => {
    await page.evaluate(() => { const grid = document.querySelector('.grid'); grid.scrollTop = grid.scrollHeight; });
    return text(page, '.grid');
  }, (seen) => seen.includes('Hero 1999'), 20_000);
  assert.ok((await page.evaluate(() => document.querySelectorAll('*').length)) <= 1500);
  await see(page, '2,000 rows');
  await done(page);
});

test('rows are found by key, from a key, and by a value', async () => {
  const page = await open(server, '/tables/shop/heroes');
  await see(page, 'Hero 3');
  await page.fill('[data-name=key]', '1234');
  await page.keyboard.press('Enter');
  await eventually(() => page.inputValue('[data-name=json]'), (json) => json.includes('Hero 1234'));
  await page.keyboard.press('Escape');
  await page.fill('[data-name=key]', '99999');
  await page.keyboard.press('Enter');
  await page.waitForSelector('form [role=alert]:has-text("No row has the key 99999")');
  assert.equal(await page.locator('.toast').count(), 0);
  await page.fill('label:has-text("from") input', '"x');
  await page.click('.filters button:has-text("Show")');
  await page.waitForSelector('.filters [role=alert]:has-text("This begins as JSON")');
  assert.equal(await page.getAttribute('label:has-text("from") input', 'aria-invalid'), 'true');
  await go(page, '/tables');
  await go(page, '/tables/shop/heroes?from=1990&field=city&is=Oslo');
  await see(page, '5 rows');
  assert.match(page.url(), /from=1990/);
  await page.click('button:has-text("Clear")');
  await see(page, 'so far');
  await done(page);
});

test('a cell is edited in place: only its field is sent', async () => {
  const page = await open(server, '/tables/shop/heroes');
  await see(page, 'Hero 3');
  // A field that this page shows, changed elsewhere meanwhile.
  await server.run(heroes.get(1).update({ name: 'Renamed' }));
  const cell = page.locator('tr[aria-rowindex="3"] td[data-field=city]');
  await cell.dblclick();
  await page.keyboard.type('Bergen');
  await page.keyboard.press('Enter');
  await eventually(() => server.run(heroes.get(1)), (row) => row.city === 'Bergen');
  assert.equal((await server.run(heroes.get(1))).name, 'Renamed');
  await done(page);
});

test('a cell keeps the type of its value, unless JSON of another type is typed', async () => {
  const time = (text) => r.ISO8601(text);
  await server.run(heroes.insert({ id: 1999.5, text: 'a', lines: 'a\nb', number: 1, at: time('2020-01-02T03:04:05.25+02:30') }));
  const page = await open(server, '/tables/shop/heroes?from=1999.5');
  const type = async (field, typed) => {
    await page.locator(`tr[aria-rowindex="2"] td[data-field=${field}]`).dblclick();
    await page.locator('td.cell input').fill(typed);
    await page.locator('td.cell input').press('Enter');
  };
  const stored = (row) => eventually(() => server.run(heroes.get(1999.5).toJsonString()), (now) => now.includes(row));
  await type('text', '2026');
  await stored('"text":"2026"');
  await type('lines', '"a\\nc"');
  await stored('"lines":"a\\nc"');
  await type('at', '2026-02-30T00:00:00Z');
  await page.waitForSelector('.toast.bad:has-text("Type a time such as")');
  await page.locator('td.cell input').fill('2026-02-28T01:02:03+01:00');
  await page.locator('td.cell input').press('Enter');
  await eventually(() => server.run(heroes.get(1999.5)('at').toISO8601()), (now) => now === '2026-02-28T01:02:03+01:00');
  for (const typed of ['', 'two']) {
    await type('number', typed);
    await page.waitForSelector(`.toast.bad:has-text('text in quotes: "${typed}"')`);
    await page.keyboard.press('Escape');
  }
  assert.equal(await server.run(heroes.get(1999.5)('number')), 1);
  await type('number', '"two"');
  await stored('"number":"two"');
  await server.run(heroes.get(1999.5).delete());
  await done(page);
});

test('a text that looks like a number is found', async () => {
  await server.run(heroes.insert([{ id: '4242', zip: '10001' }, { id: '7', zip: 10001 }]));
  const page = await open(server, '/tables/shop/heroes?field=zip&is=10001');
  await see(page, '2 rows');
  const find = async (typed) => {
    await page.fill('[data-name=key]', typed);
    await page.keyboard.press('Enter');
    const json = await page.locator('[data-name=json]').inputValue();
    await page.keyboard.press('Escape');
    await closed(page);
    return JSON.parse(json).id;
  };
  assert.equal(await find('4242'), '4242');
  assert.equal(await find('7'), 7);
  await page.waitForSelector('.toast:has-text("type it in quotes")');
  assert.equal(await find('"7"'), '7');
  await server.run(heroes.getAll('4242', '7').delete());
  await done(page);
});

test('fields of objects are columns of their own, and one of them is edited alone', async () => {
  const page = await open(server, '/tables/shop/heroes?from=1200');
  await see(page, 'Hero 1200');
  await page.check('label:has-text("Fields of objects as columns") input');
  await page.waitForSelector('th:has-text("address.no")');
  await server.run(heroes.get(1200).update({ address: { street: 'Theirs' } }));
  const cell = page.locator('tr', { hasText: 'Hero 1200' }).first().locator('td[data-field="address.no"]');
  await cell.dblclick();
  await page.keyboard.type('77');
  await page.keyboard.press('Enter');
  await eventually(() => server.run(heroes.get(1200)('address')), (address) => address.no === 77 && address.street === 'Theirs');
  // The focus is in the cell again.
  await eventually(() => page.evaluate(() => document.activeElement?.getAttribute('data-field')), (field) => field === 'address.no');
  await page.uncheck('label:has-text("Fields of objects as columns") input');
  const whole = page.locator('tr', { hasText: 'Hero 1201' }).first().locator('td[data-field=address]');
  await whole.dblclick();
  const before = await server.run(heroes.get(1201)('address'));
  await page.keyboard.type(JSON.stringify({ ...before, no: 5 }));
  await page.keyboard.press('Enter');
  await eventually(() => server.run(heroes.get(1201)('address')), (address) => address.no === 5);
  await done(page);
});

test('rows that are shown change in place, and new ones are counted', async () => {
  const page = await open(server, '/tables/shop/heroes?from=1300');
  await see(page, 'Hero 1300');
  await eventually(async () => {
    await server.run(heroes.get(1300).update({ name: r.expr('Seen ').add(r.now().toEpochTime().coerceTo('string')) }));
    return text(page, '.grid');
  }, (seen) => seen.includes('Seen '));
  await server.run(heroes.get(1301).delete());
  await eventually(() => text(page, '.grid'), (seen) => !seen.includes('Hero 1301'));
  await server.run(heroes.insert({ id: 1300.5, name: 'Late' }));
  await page.click('[data-name=added]');
  await see(page, 'Late');
  // A row that changes while its cell is edited: the edit compares with what was displayed.
  const cell = page.locator('tr', { hasText: 'Hero 1302' }).first().locator('td[data-field=city]');
  await cell.dblclick();
  await server.run(heroes.get(1302).update({ city: 'Theirs' }));
  await page.keyboard.press('Control+a');
  await page.keyboard.type('Mine');
  await page.keyboard.press('Enter');
  await page.waitForSelector('dialog:has-text("The row has changed meanwhile")');
  assert.equal((await server.run(heroes.get(1302))).city, 'Theirs');
  await submit(page);
  await eventually(() => server.run(heroes.get(1302)('city')), (city) => city === 'Mine');
  await server.run(heroes.insert([{ id: 1301, name: 'Hero 1301' }, { id: 1300, name: 'Hero 1300' }], { conflict: 'update' }));
  await server.run(heroes.get(1300.5).delete());
  await done(page);
});

test('a rebalance is shown before it is made', async () => {
  await server.run(r.db('shop').tableCreate('uneven', { shards: 2 }));
  const uneven = r.db('shop').table('uneven');
  await server.run(uneven.insert(r.range(1000).map((i) => ({ id: i }))));
  const rowsOfShards = () => server.run(uneven.info()('doc_count_estimates'));
  const page = await open(server, '/tables/shop/uneven/shards');
  await see(page, 'With 3 replicas, 1 lost server is survived without a pause');
  await page.click('button:has-text("Rebalance…")');
  await page.waitForSelector('[data-name=balance]');
  await see(page, 'would belong to another shard');
  assert.equal((await rowsOfShards()).filter((count) => count > 900).length, 1);
  await page.click('[data-name=balance] button.primary');
  await eventually(rowsOfShards, (counts) => counts.every((count) => count > 300));
  await done(page);
  await server.run(r.db('shop').tableDrop('uneven'));
});

test('a row is edited as JSON', async () => {
  const page = await open(server, '/tables/shop/heroes?from=10');
  await page.click('[aria-label="Open 10"]');
  await page.fill('[data-name=json]', '{"id": 10, nonsense');
  await submit(page);
  await page.waitForSelector('dialog [role=alert]:has-text("no JSON")');
  await page.fill('[data-name=json]', JSON.stringify({ id: 10, name: 'Ten', address: { street: 'Low Street', no: 10 }, extra: [1, null] }));
  await submit(page);
  await closed(page);
  assert.deepEqual(await server.run(heroes.get(10)), { id: 10, name: 'Ten', address: { street: 'Low Street', no: 10 }, extra: [1, null] });
  await see(page, 'Ten');
  await done(page);
});

test('a conflict is told: nothing is lost', async () => {
  const page = await open(server, '/tables/shop/heroes?from=20');
  await page.click('[aria-label="Open 20"]');
  await server.run(heroes.get(20).update({ city: 'Theirs', address: { no: 99 } }));
  const row = JSON.parse(await page.inputValue('[data-name=json]'));
  await page.fill('[data-name=json]', JSON.stringify({ ...row, city: 'Mine' }));
  await submit(page);
  await page.waitForSelector('dialog:has-text("The row has changed meanwhile")');
  assert.equal((await server.run(heroes.get(20))).city, 'Theirs');
  // The whole row on demand, with the field marked.
  assert.ok(!(await page.isVisible('dialog textarea[aria-label="What will be stored"]')));
  await page.click('dialog summary');
  await eventually(() => page.locator('[aria-label="What will be stored"]').evaluate((one) => one.value.slice(one.selectionStart, one.selectionEnd)), (seen) => /^"city": "Mine"/.test(seen));
  await page.click('dialog button:has-text("Save mine")');
  await closed(page);
  const stored = await server.run(heroes.get(20));
  assert.deepEqual([stored.city, stored.address.no], ['Mine', 99]);
  await page.click('[aria-label="Open 22"]');
  await server.run(heroes.get(22).delete());
  const other = JSON.parse(await page.inputValue('[data-name=json]'));
  await page.fill('[data-name=json]', JSON.stringify({ ...other, city: 'Mine' }));
  await submit(page);
  await page.waitForSelector('dialog:has-text("The row was deleted meanwhile")');
  await page.click('dialog button:has-text("Keep theirs")');
  await closed(page);
  assert.equal(await server.run(heroes.get(22)), null);
  await done(page);
});

test('values of all types are shown, opened and stored unchanged', async () => {
  const whole = { id: 'types', time: r.time(2020, 1, 2, 3, 4, 5.25, '+02:30'), binary: r.binary(Buffer.from([0, 1, 255])), point: r.point(10, 59), nested: { a: [{ b: null }, true, -1.5e300], '': 0, 'a.b': 1 }, text: 'ünï\u0007\u202e' };
  await server.run(heroes.insert(whole));
  const before_ = await server.run(heroes.get('types').toJsonString());
  const page = await open(server, '/tables/shop/heroes?from="types"');
  await see(page, '2020-01-02T03:04:05.25');
  await page.click('button[aria-label*="types"]');
  await submit(page);
  await closed(page);
  assert.equal(await server.run(heroes.get('types').toJsonString()), before_);
  await page.click('button[aria-label*="types"]');
  await page.fill('[data-name=json]', (await page.inputValue('[data-name=json]')).replace('"a.b": 1', '"a.b": 2'));
  await submit(page);
  await closed(page);
  assert.equal(await server.run(heroes.get('types').toJsonString()), before_.replace('"a.b":1', '"a.b":2'));
  await done(page);
});

test('rows are added, copied and deleted', async () => {
  const page = await open(server, '/tables/shop/heroes');
  await page.click('.row button.primary:has-text("Row")');
  await page.fill('[data-name=json]', '{"id": "new", "name": "New"}');
  await submit(page);
  await closed(page);
  await page.click('[aria-label*="Open \\"new"]');
  await page.click('dialog button:has-text("Copy as new")');
  await submit(page);
  await closed(page);
  assert.equal(await server.run(heroes.filter({ name: 'New' }).count()), 2);
  await page.check('[aria-label="Choose 5"]');
  await page.check('[aria-label="Choose 6"]');
  await page.click('button:has-text("Delete 2")');
  await submit(page);
  await closed(page);
  assert.equal(await server.run(heroes.getAll(5, 6).count()), 0);
  await page.click('[aria-label*="Open \\"new"]');
  await page.click('dialog button:has-text("Delete")');
  assert.ok(await server.run(heroes.get('new')), 'it asks first');
  await page.click('dialog:has-text("Delete 1 row") .actions button.primary');
  await closed(page);
  assert.equal(await server.run(heroes.get('new')), null);
  await done(page);
});

test('a row is deleted only as it was displayed', async () => {
  const page = await open(server, '/tables/shop/heroes?from=1400');
  await page.click('[aria-label="Open 1400"]');
  await server.run(heroes.get(1400).update({ city: 'Theirs' }));
  await page.click('dialog button:has-text("Delete")');
  const confirm = page.locator('dialog', { hasText: 'This cannot be taken back' }).locator('.actions button.primary');
  await confirm.click();
  await page.waitForSelector('dialog [role=alert]:has-text("city is \\"Theirs\\"")');
  assert.equal((await server.run(heroes.get(1400))).city, 'Theirs');
  await confirm.click();
  await closed(page);
  assert.equal(await server.run(heroes.get(1400)), null);
  await page.check('[aria-label="Choose 1401"]');
  await page.check('[aria-label="Choose 1402"]');
  await page.check('[aria-label="Choose 1403"]');
  await page.click('button:has-text("Delete 3")');
  await server.run(heroes.get(1402).update({ city: 'Theirs' }));
  await server.run(heroes.get(1403).delete());
  await confirm.click();
  await page.waitForSelector('dialog [role=alert]:has-text("1 row was changed meanwhile")');
  assert.deepEqual(await server.run(heroes.getAll(1401, 1402, 1403)('id')), [1402]);
  await page.click('dialog button:has-text("Cancel")');
  await see(page, 'Delete 1');
  await done(page);
});

test('what is typed in a cell stays until it is stored', async () => {
  await server.run(r.db('rethinkdb').table('users').insert({ id: 'reader', password: 'sesame' }));
  const grant = (write) => server.run(r.grant('reader', { read: true, config: true, write }));
  await grant(false);
  const page = await openAs('reader');
  await go(page, '/tables/shop/heroes?from=1500');
  for (const name of ['New row', 'Import rows']) {
    const button = page.getByRole('button', { name });
    await button.waitFor();
    assert.ok(await button.isDisabled());
    assert.match(await button.getAttribute('title'), /write permission/);
  }
  const line = page.locator('tr[aria-rowindex="2"]');
  await line.locator('td[data-field=city]').dblclick();
  await page.keyboard.type('Typed');
  await page.keyboard.press('Enter');
  await page.waitForSelector('td.cell input[aria-invalid=true]');
  // Another cell does not take its place.
  await line.locator('td[data-field=name]').dblclick();
  assert.equal(await page.inputValue('td.cell input'), 'Typed');
  await grant(true);
  await page.locator('td.cell input').press('Enter');
  await page.waitForSelector('td.cell input', { state: 'detached' });
  assert.equal((await server.run(heroes.get(1500))).city, 'Typed');
  await done(page);
});

test('a user who may read one database reads its tables', async () => {
  await server.run(r.db('rethinkdb').table('users').insert({ id: 'visitor', password: 'sesame' }));
  await server.run(r.db('shop').grant('visitor', { read: true }));
  const page = await openAs('visitor');
  await page.keyboard.press('Control+k');
  await page.waitForSelector('.palette li:has-text("shop.heroes")');
  await page.keyboard.press('Escape');
  await go(page, '/tables');
  await see(page, 'here are their names');
  await page.click('td a:text-is("heroes")');
  await see(page, 'Hero 3');
  await see(page, 'Ready');
  await go(page, '/tables/shop/heroes/settings');
  await see(page, 'You need the config permission');
  await done(page);
});

test('indexes are made, used, renamed and dropped', async () => {
  const page = await open(server, '/tables/shop/heroes/indexes');
  await see(page, 'no secondary indexes');
  for (const fields of ['city', 'city, address.no']) {
    await page.click('button:has-text("Other kinds")');
    await page.fill('[data-name=fields]', fields);
    await submit(page);
    await closed(page);
  }
  await see(page, /city_address\.no[\s\S]*Ready/);
  await page.click('[aria-label="Rename city_address.no"]');
  await page.fill('dialog input', 'place');
  await submit(page);
  await closed(page);
  await go(page, '/tables/shop/heroes?index=place&from=["Oslo",1990]');
  await see(page, /Hero 1990/);
  await go(page, '/tables/shop/heroes/indexes');
  await page.click('[aria-label="Drop place"]');
  await submit(page);
  await closed(page);
  assert.deepEqual(await server.run(heroes.indexList()), ['city']);
  await done(page);
});

test('a new layout is previewed, then applied; settings are changed', async () => {
  const page = await open(server, '/tables/shop/heroes/shards');
  await page.fill('[data-name=replicas]', '3');
  await page.waitForSelector('[role=alert]:has-text("only 1 servers")');
  await page.fill('[data-name=replicas]', '1');
  await page.fill('[data-name=shards]', '2');
  await page.waitForSelector('[data-name=preview] :text("Shard 2")');
  assert.equal((await server.run(heroes.config())).shards.length, 1, 'a preview changes nothing');
  await page.click('button:has-text("Apply")');
  await eventually(() => server.run(heroes.config()), (config) => config.shards.length === 2);
  await page.click('button:has-text("Rebalance…")');
  await page.click('[data-name=balance] button.primary');
  await page.waitForSelector('.toast:has-text("same number of rows")');
  await go(page, '/tables/shop/heroes/settings');
  await page.selectOption('#durability', 'soft');
  await eventually(() => server.run(heroes.config()), (config) => config.durability === 'soft');
  await done(page);
});

test('a table that does not exist is told once, with a way on', async () => {
  const page = await open(server, '/tables/shop/nope');
  await see(page, 'There is no table shop.nope');
  assert.equal(await page.locator('main [role=alert]').count(), 1);
  assert.equal(await page.locator('nav.tabs').count(), 0);
  await page.click('a:has-text("All tables")');
  await see(page, 'heroes');
  await go(page, '/tables/nowhere/nope');
  await see(page, 'There is no database nowhere');
  await done(page);
});

test('on a narrow page rows begin in the upper half, and the filter unfolds', async () => {
  const page = await open(server, '/tables/shop/heroes?from=1600', { width: 360, height: 800 });
  await see(page, 'Hero 1600');
  const first = await page.locator('tr[aria-rowindex="2"]').boundingBox();
  assert.ok(first.y < 400, `rows begin at ${first.y}`);
  assert.ok(!(await page.isVisible('.filters')));
  await page.click('button:has-text("Filter: on")');
  await page.waitForSelector('.filters');
  // The tools and the key stay in sight.
  await page.evaluate(() => { document.querySelector('.grid').scrollLeft = 300; });
  const places = await page.locator('tr[aria-rowindex="2"] td').evaluateAll((cells) => cells.slice(0, 3).map((cell) => cell.getBoundingClientRect().left));
  const edge = (await page.locator('.grid').boundingBox()).x;
  assert.deepEqual(places.map((left) => Math.round(left - edge)), [0, 34, 80]);
  await done(page);
});

test('a table that is dropped while it is open says so', async () => {
  await server.run(r.db('shop').tableCreate('brief'));
  const page = await open(server, '/tables/shop/brief');
  await see(page, 'The table is empty');
  await server.run(r.db('shop').tableDrop('brief'));
  await see(page, 'Table `shop.brief` does not exist');
  await done(page);
});

// Files: rows of tables and results as files, and files as rows.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, open, query, r, see, Server, text } = require('./harness.js');

let server;
const heroes = r.db('shop').table('heroes');
const imported = r.db('shop').table('imported');

before(async () => {
  server = await new Server().start();
  await server.run(r.dbCreate('shop'));
  await server.run(r.db('shop').tableCreate('heroes'));
  await server.run(r.db('shop').tableCreate('imported'));
  await server.run(heroes.insert(r.range(2000).map((i) => ({ id: i, name: r.expr('Hero ').add(i.coerceTo('string')) }))));
});
after(async () => { await closeBrowser(); await server.remove(); });

const submit = (page) => page.click('dialog .actions button.primary');
const closed = (page) => page.waitForSelector('dialog', { state: 'detached' });

async function take(page, name, content) {
  await page.click('button:has-text("Import")');
  await page.setInputFiles('dialog input[type=file]', { name, mimeType: 'text/plain', buffer: Buffer.from(content) });
}
async function refused(page, name, content, said) {
  await take(page, name, content);
  await eventually(() => text(page, 'dialog [role=alert]').catch(() => ''), (seen) => said.every((one) => seen.includes(one)));
  assert.ok(await page.isDisabled('dialog .actions button.primary'));
  await page.keyboard.press('Escape');
  await closed(page);
}
async function exported(page, format) {
  await page.click('button:has-text("Export")');
  await page.selectOption('dialog select', format);
  const [file] = await Promise.all([page.waitForEvent('download'), submit(page)]);
  await closed(page);
  return fs.readFileSync(await file.path(), 'utf8');
}

test('a table is exported', async () => {
  const page = await open(server, '/tables/shop/heroes');
  for (const [format, count] of [['json', (file) => JSON.parse(file).length], ['jsonl', (file) => file.trim().split('\n').length], ['csv', (file) => file.trim().split('\r\n').length - 1]]) {
    assert.equal(count(await exported(page, format)), 2000, format);
  }
  await done(page);
});

test('files are imported, and a wrong one writes nothing', async () => {
  const page = await open(server, '/tables/shop/imported');
  await refused(page, 'wrong.csv', 'id,name\n1,a\n2,b,c\n3\n', ['Line 3 has 3 columns', 'Line 4 has 1 column;']);
  await take(page, 'odd.csv', 'id,name\n100,x\n101,y,z\n3,dup');
  await eventually(() => text(page, 'dialog [role=alert]').catch(() => ''), (seen) => seen.includes('This file cannot be imported yet') && seen.includes('Line 3 has 3 columns'));
  assert.equal(await page.locator('[data-name=notes]').count(), 0);
  assert.equal(await page.locator('[data-name=preview] tbody tr').count(), 2);
  await see(page, '2 rows:');
  assert.ok(!(await text(page)).includes('Nothing was stored'));
  await page.keyboard.press('Escape');
  await closed(page);
  await refused(page, 'names.csv', 'id,name,,name\n1,a,b,c\n', ['Line 1: column 3 has no name', 'columns 2 and 4 have the same name name']);
  await refused(page, 'key.csv', 'id,name\n1,a\nnull,b\n', ['Line 3, field id: the key of a row cannot be null']);
  await refused(page, 'wrong.json', '[\n{"id": 1},\n{"id": 2,\n "city": "Oslo" "name": 1}\n]', ['Line 4, field "city"']);
  await refused(page, 'wrong.jsonl', '{"id": 1}\n7\n', ['Line 2: this is no row', 'number']);
  await refused(page, 'open.json', '[{"id": 1},\n{"id": 2}', ['Line 2: the file ends inside']);
  await take(page, 'good.csv', 'id,name,note\n1,"a, ""b""",\n2,c,x\n');
  await submit(page);
  await closed(page);
  assert.deepEqual(await server.run(imported.orderBy('id')), [{ id: 1, name: 'a, "b"' }, { id: 2, name: 'c', note: 'x' }]);
  await take(page, 'more.jsonl', '{"id": 2}\n{"id": 3}\n');
  await submit(page);
  await page.waitForSelector('dialog [role=alert]:has-text("Stored 1 of 2 rows. Not stored: Line 1: Duplicate primary key")');
  await page.keyboard.press('Escape');
  await closed(page);
  assert.equal(await server.run(imported.count()), 3);
  await take(page, 'all.json', '[{"id": 2, "name": "new"}]');
  await page.selectOption('dialog [data-name=conflict]', 'replace');
  await submit(page);
  await closed(page);
  assert.deepEqual(await server.run(imported.get(2)), { id: 2, name: 'new' });
  await take(page, 'keys.csv', 'id,name\n7,a\n,b\n7,c\n');
  await eventually(() => text(page, '[data-name=notes]').catch(() => ''), (seen) => seen.includes('Line 3 has no id') && seen.includes('Lines 2 and 4 have the same id, 7'));
  await server.run(imported.delete());
  await done(page);
});

const STRANGE = {
  zip: '10001', code: '007', text: 'a "b",\n;c', empty: '', none: null, nullText: 'null', yes: true, yesText: 'true', number: -0.5, large: 1.7976931348623157e308, tiny: 5e-324, numberText: '1e5', long: '12345678901234567890',
  list: [1, [null, 'x,y'], {}], nested: { a: { b: [true] } }, listText: '[1]', objectText: '{"a":1}', quoted: '"x"', draft: '[draft] x', blanks: ' x ', timeText: '2026-01-02T03:04:05Z', '1': 2, 'a,b': 'comma', ' s': 's', '[1]': 'list',
};

test('a file of CSV keeps the types of all values', async () => {
  const rows = [STRANGE, { zip: 10001, other: 'x', time: r.time(2020, 1, 2, 3, 4, 5.25, '+02:30'), binary: r.binary(Buffer.from([0, 255])), point: r.point(1, 2) }, ...Array.from({ length: 300 }, (_, i) => ({ [`f${i % 7}`]: i }))];
  await server.run(heroes.delete());
  await server.run(heroes.insert(rows.map((row, id) => r.expr(row).merge({ id }))));
  const all = () => server.run(heroes.orderBy('id').map((row) => row.toJSON()));
  const first = await all();
  const page = await open(server, '/tables/shop/heroes');
  const file = await exported(page, 'csv');
  await server.run(heroes.delete());
  await see(page, 'The table is empty').catch(() => page.reload());
  await take(page, 'heroes.csv', file);
  await page.waitForSelector('[data-name=preview]');
  await submit(page);
  await closed(page);
  assert.deepEqual(await all(), first);
  await done(page);
});

test('columns of CSV have a type, which is shown before the import and can be changed', async () => {
  const page = await open(server, '/tables/shop/imported');
  await take(page, 'typed.csv', 'id;zip;born;flag;extra\n1;01234;2026-01-31;1;x\n2;10001;2026-02-01 12:30;no;y\n');
  const kindOf = (field) => page.locator(`[data-kind="${field}"]`).innerText();
  await page.waitForSelector('[data-name=preview]');
  assert.equal(await kindOf('zip'), 'text, number');
  await page.selectOption('[aria-label="Type of zip"]', 'text');
  assert.equal(await kindOf('zip'), 'text');
  await page.selectOption('[aria-label="Type of born"]', 'time');
  await page.selectOption('[aria-label="Type of flag"]', 'boolean');
  await page.selectOption('[aria-label="Type of extra"]', 'number');
  await page.waitForSelector('dialog [role=alert]:has-text("Line 2, column extra: \\"x\\" is no number")');
  assert.ok(await page.isDisabled('dialog .actions button.primary'));
  await page.selectOption('[aria-label="Type of extra"]', 'skip');
  await submit(page);
  await closed(page);
  assert.deepEqual(await server.run(imported.orderBy('id').merge((row) => ({ born: row('born').toISO8601() }))), [
    { id: 1, zip: '01234', born: '2026-01-31T00:00:00+00:00', flag: true }, { id: 2, zip: '10001', born: '2026-02-01T12:30:00+00:00', flag: false },
  ]);
  await server.run(imported.delete());
  await done(page);
});

test('an import that breaks off says how many rows are stored, and goes on', async () => {
  const page = await open(server, '/tables/shop/imported');
  const rows = Array.from({ length: 30_000 }, (_, id) => JSON.stringify({ id, text: 'x'.repeat(200) }));
  await take(page, 'many.jsonl', rows.join('\n'));
  await page.selectOption('dialog [data-name=conflict]', 'replace');
  await submit(page);
  await page.waitForSelector('dialog [role=status]:has-text("of 30,000 rows")');
  await server.kill();
  await page.waitForSelector('dialog [role=alert]:has-text("of 30,000 rows, then, in the rows from line")');
  await server.start();
  await page.click('dialog button:has-text("Go on")');
  await page.waitForSelector('dialog', { state: 'detached', timeout: 30_000 });
  assert.equal(await server.run(imported.count()), 30_000);
  await server.run(imported.delete());
  await done(page);
});

test('an export is not held in the memory of the page', async () => {
  const page = await open(server, '/explorer');
  await query(page, "r.range(40000).map((i) => ({id: i, text: r.range(100).map((j) => 'abcdefgh').reduce((a, b) => a.add(b))}))");
  await see(page, 'rows');
  const session = await page.context().newCDPSession(page);
  const heap = async () => { await session.send('HeapProfiler.collectGarbage'); return (await session.send('Runtime.getHeapUsage')).usedSize; };
  const first = await heap();
  const download = page.waitForEvent('download', { timeout: 60_000 });
  await page.selectOption('[aria-label="Download"]', 'jsonl');
  let most = 0;
  let isDone = false;
  const file = download.then((found) => { isDone = true; return found; });
  while (!isDone) most = Math.max(most, await heap());
  const size = fs.statSync(await (await file).path()).size;
  assert.ok(size > 30e6, `${size} bytes`);
  assert.ok(most - first < 20e6, `the page held ${most - first} bytes`);
  await done(page);
});

// Large tables, values and feeds; many conflicts; restarts. `REKINDLE_CONSOLE_FULL=1` runs the full sizes.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

const isFull = !!process.env.REKINDLE_CONSOLE_FULL;
const sized = (small, full) => (isFull ? full : small);

let server;
const heroes = r.db('test').table('heroes');
const values = r.db('test').table('values');

before(async () => {
  server = await new Server().start();
  await server.run(r.db('test').tableCreate('heroes', { durability: 'soft' }));
  await server.run(r.db('test').tableCreate('values'));
  await server.run(r.db('test').tableCreate('shared'));
});
after(async () => { await closeBrowser(); await server.remove(); });

const elements = (page) => page.evaluate(() => document.querySelectorAll('*').length);
const memory = async (page) => {
  const session = await page.context().newCDPSession(page);
  await session.send('HeapProfiler.collectGarbage');
  const { usedSize } = await session.send('Runtime.getHeapUsage');
  await session.detach();
  return usedSize;
};

test('a large table: few elements, and any row is found and shown', async () => {
  const count = sized(30_000, 1_000_000);
  for (let at = 0; at < count; at += 10_000) await server.run(heroes.insert(r.range(at, at + 10_000).map((i) => ({ id: i, name: r.expr('Hero ').add(i.coerceTo('string')) }))));
  const page = await open(server, '/tables/test/heroes');
  await see(page, 'Hero 3');
  await go(page, '/tables');
  await go(page, `/tables/test/heroes?from=${count - 40}`);
  await eventually(async () => {
    await page.evaluate(() => { const grid = document.querySelector('.grid'); if (grid) grid.scrollTop = grid.scrollHeight; });
    return text(page, '.grid').catch(() => '');
  }, (seen) => seen.includes(`Hero ${count - 1}`), 20_000);
  assert.ok(await elements(page) <= 1500, `${await elements(page)} elements`);
  // The rows of the page are those of the driver.
  const shown = await page.locator('.grid td[data-field=name]').allInnerTexts();
  const stored = await server.run(heroes.between(count - 40, r.maxval).orderBy({ index: 'id' })('name').coerceTo('array'));
  assert.deepEqual(shown, stored.slice(-shown.length));
  await done(page);
});

test('a document of five megabytes is shown, and one field of it is changed', async () => {
  const part = 'x'.repeat(1000);
  await server.run(values.insert({ id: 'large', parts: r.range(sized(1000, 5000)).map(() => part).coerceTo('array'), small: 1 }));
  const page = await open(server, '/explorer');
  await query(page, "r.db('test').table('values').get('large')");
  await eventually(() => text(page, '.lines').catch(() => ''), (seen) => seen.includes('parts'), 20_000);
  assert.ok(await elements(page) <= 1500);
  await go(page, '/tables/test/values');
  const cell = page.locator('td[data-field=small]').first();
  await cell.dblclick();
  await page.keyboard.type('2');
  await page.keyboard.press('Enter');
  await eventually(() => server.run(values.get('large')('small')), (small) => small === 2);
  assert.equal(await server.run(values.get('large')('parts').count()), sized(1000, 5000));
  await server.run(values.get('large').delete());
  await done(page);
});

test('a feed of thousands of changes a second: memory stays, and Pause answers at once', async () => {
  const page = await open(server, '/explorer');
  await query(page, "r.db('test').table('heroes').changes({squash: false, changefeedQueueSize: 1000000})");
  await see(page, 'Waiting for the first change');
  const connection = await server.connect();
  let isOver = false, written = 0;
  const began = Date.now();
  const writer = (async () => {
    while (!isOver) {
      // Five thousand a second, as far as the machine gets.
      const due = ((Date.now() - began) / 1000) * 5000;
      if (written > due) { await new Promise((resolve) => setTimeout(resolve, 10)); continue; }
      await heroes.insert(r.range(written, written + 250).map((i) => ({ id: r.expr('f').add(i.mod(5000).coerceTo('string')), n: i })), { conflict: 'replace', durability: 'soft' }).run(connection);
      written += 250;
    }
  })();
  try {
    await see(page, /the last 1,000 are kept/);
    const first = await memory(page);
    const seconds = sized(6, 60);
    let most = first;
    for (let second = 0; second < seconds; second += 2) {
      await new Promise((resolve) => setTimeout(resolve, 2000));
      most = Math.max(most, await memory(page));
    }
    assert.ok(most - first <= 20e6, `memory grew by ${most - first} bytes`);
    const before = Date.now();
    await page.click('button:has-text("Pause")');
    await page.waitForSelector('button:has-text("Go on")');
    const took = Date.now() - before;
    if (isFull) console.log(`feed: ${Math.round(written / ((Date.now() - began) / 1000))} changes a second, memory +${((most - first) / 1e6).toFixed(1)} MB, Pause ${took} ms`);
    assert.ok(took <= 1000, `Pause took ${took} ms`);
  } finally {
    isOver = true;
    await writer;
    await connection.close();
  }
  await page.click('button:has-text("End")');
  await done(page);
});

// Values of all types, with names and texts that pages may mistake for something else.
const STRANGE = ['<img src=x onerror=alert(1)>', '</script><script>alert(2)</script>', '\u202egnitrevni', 'a\u0000b\u0007c', '{{constructor.constructor("alert(3)")()}}', 'javascript:alert(4)', '"><svg onload=alert(5)>', '%00%0d%0aX', "'; drop table--", '\ufeff\u200f', 'a.b.c', '$reql', '__proto__', 'constructor', ' ', 'é ü 漢字 🙂'];

test('strange names and texts are text: no dialog, no report of the policy', async () => {
  const texts = Array.from({ length: sized(400, 10_000) }, (_, i) => `${STRANGE[i % STRANGE.length]}${i}`);
  const rowsOf = texts.map((value, i) => ({ id: `s${i}`, value, [value]: i, nested: { [value]: value } }));
  for (let at = 0; at < rowsOf.length; at += 200) await server.run(r.db('test').table('shared').insert(r.json(JSON.stringify(rowsOf.slice(at, at + 200))), { conflict: 'replace' }));
  const page = await open(server, '/tables/test/shared');
  await page.waitForSelector('.grid tbody tr:not(.pad)');
  for (let step = 0; step < sized(4, 40); step++) {
    await page.evaluate(() => { const grid = document.querySelector('.grid'); grid.scrollTop += 3000; grid.scrollLeft += 400; });
    await page.waitForTimeout(50);
  }
  await page.check('label:has-text("Fields of objects as columns") input');
  await go(page, '/explorer');
  await query(page, "r.db('test').table('shared').limit(200)");
  await see(page, /\d+ rows/);
  for (const view of ['Table', 'Raw', 'Tree']) await page.click(`.segments button:has-text("${view}")`);
  assert.equal(await page.locator('main img, main svg[onload], main script').count(), 0);
  await server.run(r.db('test').table('shared').delete());
  await page.evaluate(() => localStorage.clear());
  await done(page);
});

test('values of all types are opened and saved without a change, and a changed field changes alone', async () => {
  const samples = {
    null: null, true: true, zero: 0, negative: -0.5, tiny: 5e-324, large: 1.7976931348623157e308, whole: 9007199254740992, fraction: 0.1, empty: '', text: 'a "b" \\ \n \t \u2028', unicode: '\u{1f642} é',
    array: [], nested: [[1, [2, [{ a: null }]]], {}], object: {}, deep: { a: { b: { c: { d: [1, { e: 'f' }] } } } }, 'with.dot': { 'a.b': 1 }, proto: { constructor: 1 },
  };
  const special = { time: r.epochTime(1375147296.681).inTimezone('+02:30'), binary: r.binary(Buffer.from([0, 1, 254, 255])), point: r.point(-117.22, 32.71), polygon: r.polygon([0, 0], [0, 1], [1, 1]) };
  const all = { id: 'types', ...samples };
  await server.run(values.insert(r.expr(all).merge(special), { conflict: 'replace' }));
  const stored = () => server.run(values.get('types').toJSON());
  const first = await stored();
  const page = await open(server, '/tables/test/values');
  const fields = Object.keys({ ...samples, ...special });
  // Each field as a cell: opened and left, and opened and committed as it is.
  for (const field of fields.slice(0, sized(8, fields.length))) {
    const cell = page.locator(`td[data-field="${field}"]`).first();
    await cell.scrollIntoViewIfNeeded();
    await cell.dblclick();
    await page.keyboard.press('Enter');
    await page.waitForSelector('.grid td.cell input', { state: 'detached' });
  }
  assert.equal(await stored(), first);
  // The whole row as JSON.
  await page.click('[aria-label="Open \\"types\\""]');
  await page.click('dialog .actions button.primary');
  await page.waitForSelector('dialog', { state: 'detached' });
  assert.equal(await stored(), first);
  const changed = fields.slice(0, sized(4, fields.length));
  for (const field of changed) {
    await page.click('[aria-label="Open \\"types\\""]');
    const row = JSON.parse(await page.inputValue('[data-name=json]'));
    await page.fill('[data-name=json]', JSON.stringify({ ...row, [field]: 'changed' }));
    await page.click('dialog .actions button.primary');
    await page.waitForSelector('dialog', { state: 'detached' });
  }
  const now = JSON.parse(await stored()), before = JSON.parse(first);
  for (const field of changed) { assert.equal(now[field], 'changed', field); delete now[field]; delete before[field]; }
  assert.deepEqual(now, before);
  await done(page);
});

test('browsers and a driver edit the same rows: no update is lost, and each conflict is told', async () => {
  const shared = r.db('test').table('shared');
  const rounds = sized(24, 1000), rowCount = 4;
  await server.run(shared.insert(Array.from({ length: rowCount }, (_, id) => ({ id, a: 0, b: 0, c: 0 })), { conflict: 'replace' }));
  const pages = [await open(server, '/tables/test/shared'), await open(server, '/tables/test/shared')];
  for (const page of pages) await page.waitForSelector('td[data-field=c]');
  const connection = await server.connect();
  const stored = { a: 0, b: 0, c: 0 };
  let conflicts = 0;
  // Each adds one to a field of a row, from what it has displayed; all three at the same time.
  const byPage = async (page, field, id) => {
    const cell = page.locator(`tr[aria-rowindex="${id + 2}"] td[data-field=${field}]`);
    await cell.dblclick();
    const input = page.locator('.grid td.cell input');
    const shown = Number(await input.inputValue());
    await input.fill(String(shown + 1));
    await page.keyboard.press('Enter');
    const outcome = await Promise.race([page.waitForSelector('dialog:has-text("meanwhile")').then(() => 'conflict'), page.waitForSelector('.toast:has-text("The row is stored")').then(() => 'stored')]);
    if (outcome === 'conflict') {
      conflicts += 1;
      await page.click('dialog button:has-text("Keep theirs")');
      await page.waitForSelector('dialog', { state: 'detached' });
      return;
    }
    stored[field] += 1;
    await page.evaluate(() => document.querySelectorAll('.toast').forEach((toast) => toast.remove()));
  };
  const byDriver = async (field, id) => {
    const old = await shared.get(id)(field).run(connection);
    const written = await shared.get(id).update((row) => r.branch(row(field).eq(old), { [field]: old + 1 }, {})).run(connection);
    stored[field] += written.replaced;
  };
  for (let round = 0; round < rounds; round++) {
    const id = round % rowCount;
    const field = round % 3 === 0 ? 'c' : null;
    await Promise.all([byPage(pages[0], field ?? 'a', id), byPage(pages[1], field ?? 'b', id), byDriver(field ?? 'c', id)]);
  }
  const sums = await server.run(shared.map((row) => row.pluck('a', 'b', 'c')).coerceTo('array'));
  for (const field of ['a', 'b', 'c']) assert.equal(sums.reduce((sum, row) => sum + row[field], 0), stored[field], field);
  if (isFull) console.log(`${rounds} rounds: ${Object.values(stored).reduce((a, b) => a + b)} stored, ${conflicts} conflicts told`);
  await connection.close();
  for (const page of pages) await done(page);
});

test('the node behind the page is killed again and again', async () => {
  const page = await open(server, '/explorer');
  await query(page, 'r.expr("typed")');
  await see(page, 'typed');
  const told = [], back = [];
  for (let round = 0; round < sized(2, 20); round++) {
    let began = Date.now();
    await server.kill();
    await page.waitForSelector('.bar.bad', { timeout: 3000 });
    told.push(Date.now() - began);
    await server.start();
    began = Date.now();
    await page.waitForSelector('.bar.bad', { state: 'detached', timeout: 5000 });
    back.push(Date.now() - began);
    assert.match(await text(page, '.cm-content'), /typed/);
  }
  if (isFull) console.log(`told after ${Math.max(...told)} ms at most, back ${Math.max(...back)} ms after the start at most`);
  await done(page);
});

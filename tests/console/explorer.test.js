// The explorer: scripts, results, feeds, plans.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

let server;
const heroes = r.db('test').table('heroes');

before(async () => {
  server = await new Server().start();
  await server.run(r.db('test').tableCreate('heroes'));
  await server.run(heroes.insert(r.range(300).map((i) => ({ id: i, name: r.expr('Hero ').add(i.coerceTo('string')), city: r.branch(i.mod(2).eq(0), 'Oslo', 'London') }))));
});
after(async () => { await closeBrowser(); await server.remove(); });

const explorer = (options) => open(server, '/explorer', options);
const alert = (page) => eventually(() => text(page, '[role=alert]').catch(() => ''), Boolean);

test('queries, several statements, await and run give their results', async () => {
  const page = await explorer();
  await query(page, 'r.expr(6).mul(7)');
  await see(page, '42');
  await query(page, "r.db('test').table('heroes').count().run(conn_is_ignored = undefined)".replace('conn_is_ignored = undefined', ''));
  await see(page, '300');
  await query(page, "const n = await r.db('test').table('heroes').count().run();\nr.expr(n).add(1); // one more\nr.db('test').table('heroes').filter({city: 'Oslo'})");
  await see(page, '150 rows');
  assert.equal(await page.locator('[role=tab]').count(), 2);
  await page.locator('[role=tab]').first().click();
  await see(page, '301');
  await query(page, 'const f = (x) => x * 2;\nf(21)');
  await see(page, '42');
  await done(page);
});

test('errors are told and marked', async () => {
  const page = await explorer();
  await query(page, 'r.table(');
  await alert(page);
  await page.waitForSelector('.cm-lintRange-error');
  await query(page, "r.db('test').table('nope').count()");
  assert.match(await alert(page), /Table `test\.nope` does not exist[\s\S]*\^\^\^/);
  await query(page, 'const x = 1;');
  await eventually(() => alert(page), (said) => said.includes('makes no query'));
  await query(page, 'nonsense');
  await eventually(() => alert(page), (said) => said.includes('nonsense is not defined'));
  await done(page);
});

const marked = (page) => page.locator('.cm-lintRange-error').allInnerTexts().then((parts) => parts.join(''));

test('only the term that failed is marked', async () => {
  const page = await explorer();
  for (const [typed, wanted] of [
    ["r.db('test').table('nope').count()", "table('nope')"],
    ["r.db('test')\n  .table('heroes')\n  .get(1)('name').add(1)", 'add(1)'],
    ["r.expr([1, 2]).map((x) => x.add(r.expr('a').sub(1)))", 'sub(1)'],
    ["r.db('test').table('heroes').filter(r.row('city').add(1).eq(2)).limit('x')", "'x'"],
    ["r.expr({a: {b: r.expr(1).div(0)}})", 'div(0)'],
    ["const rows = await r.db('test').table('nope').run();\nr.expr(1)", "table('nope')"],
    ["r.expr(1).do((a) => { return a.add('x'); })", "add('x')"],
  ]) {
    await query(page, typed);
    await eventually(() => marked(page), (seen) => seen === wanted).catch((error) => { throw new Error(`${typed}: ${error.message}`); });
  }
  await page.check('label:has-text("Live") input');
  await query(page, "r.db('test').table('none').filter({a: 1})");
  await eventually(() => marked(page), (seen) => seen === "table('none')");
  await query(page, "r.db('test').table('heroes').orderBy('city')");
  await eventually(() => alert(page), (said) => said.includes('without Live the query runs once'));
  await done(page);
});

test('syntax errors have a line and a column, and habits from programs a hint', async () => {
  const page = await explorer();
  const said = (wanted) => eventually(() => alert(page), (seen) => wanted.every((one) => seen.includes(one)));
  await query(page, "r.dbList();\nr.table('a'))");
  await said(['Line 2, column 13: ']);
  assert.equal(await marked(page), ')');
  await query(page, "r.dbList();\nconst f = () => { await r.dbList(); };");
  await said(['async (id) =>']);
  assert.match(await marked(page), /^const f/);
  for (const [typed, wanted] of [
    ["r.dbList().run(conn, function (err, cursor) { cursor.toArray(); })", 'write .run() without one'],
    ["const cursor = await r.dbList().run();\ncursor.toArray()", 'gives all of its rows as an array'],
    ["for (let i = 0; i < 3; i++) { r.db('test').table('heroes').get(i).delete(); }", 'a query runs when it is awaited'],
    ["const r2 = require('rethinkdb');", 'r is there already'],
  ]) {
    await query(page, typed);
    await said([wanted]);
  }
  assert.ok(await server.run(heroes.get(0)));
  await done(page);
});

test('a query that ends too early, and a mistyped term, are told', async () => {
  const page = await explorer();
  const said = (wanted) => eventually(() => alert(page), (seen) => seen.includes(wanted));
  await query(page, '1+');
  await said('The query ends too early');
  await query(page, "r.db('test').tabel('heroes').count()");
  await said('There is no `tabel`. Do you mean `table`?');
  await eventually(() => marked(page), (seen) => seen === '.tabel');
  await query(page, "r.db('test').table('heroes').fliter({city: 'Oslo'})");
  await said('Do you mean `filter`?');
  await query(page, 'const x = {};\nx.entirelyUnknown()');
  await said('x.entirelyUnknown is not a function');
  await done(page);
});

test('terms that fit are offered first', async () => {
  const page = await explorer();
  const offered = async (typed) => {
    await query(page, 'r.now()');
    await page.keyboard.press('Control+a');
    await page.keyboard.press('Delete');
    await page.keyboard.type(typed, { delay: 30 });
    await page.waitForSelector('.cm-tooltip-autocomplete li');
    const all = await page.locator('.cm-tooltip-autocomplete li .cm-completionLabel').allInnerTexts();
    await page.keyboard.press('Escape');
    return all.slice(0, 3).join();
  };
  await eventually(() => offered('r.'), (seen) => seen === 'db,table,row');
  await eventually(() => offered('r.table(t).'), (seen) => seen === 'get,getAll,filter');
  await eventually(() => offered('r.table(t).get(1).'), (seen) => seen.startsWith('update,delete'));
  await eventually(() => offered('r.table(t).or'), (seen) => seen.startsWith('or,orderBy') || seen.startsWith('orderBy,or'));
  await done(page);
});

test('an endless loop ends with Stop', async () => {
  const page = await explorer();
  await query(page, 'while (true) {}');
  await page.click('button:has-text("Stop")');
  const began = Date.now();
  await query(page, 'r.expr(1234)');
  await see(page, '1234');
  assert.ok(Date.now() - began < 3000);
  await done(page);
});

test('a feed shows changes, can be paused, and ends', async () => {
  const page = await explorer();
  await query(page, "r.db('test').table('heroes').changes()");
  await see(page, 'Waiting for the first change');
  await server.run(heroes.get(7).update({ city: 'Bergen' }));
  await see(page, 'Bergen');
  await page.click('button:has-text("Pause")');
  await server.run(heroes.get(7).update({ city: 'Tromsø' }));
  await see(page, '1 new');
  assert.ok(!(await text(page)).includes('Tromsø'));
  await page.click('button:has-text("Go on")');
  await see(page, 'Tromsø');
  await page.click('button:has-text("End")');
  await page.waitForSelector('text=following', { state: 'detached' });
  await done(page);
});

test('a live result follows its query', async () => {
  const page = await explorer();
  await page.check('label:has-text("Live") input');
  await query(page, "r.db('test').table('heroes').filter({city: 'Paris'})");
  await see(page, '0 rows');
  await server.run(heroes.get(1).update({ city: 'Paris' }));
  await see(page, '1 row,');
  await see(page, 'Hero 1');
  await server.run(heroes.get(1).update({ city: 'London' }));
  await see(page, '0 rows');
  await done(page);
});

test('a live result of the first rows of an order has each row at its place', async () => {
  const page = await explorer();
  await page.check('label:has-text("Live") input');
  const names = () => page.locator('.grid tbody tr:not(.pad)').allInnerTexts().then((all) => all.map((one) => /Hero [-.\d]+/.exec(one)?.[0]).join());
  await query(page, "r.db('test').table('heroes').orderBy({index: 'id'}).limit(4)");
  await page.click('.segments button:has-text("Table")');
  await eventually(names, (seen) => seen === 'Hero 0,Hero 1,Hero 2,Hero 3');
  await server.run(heroes.insert({ id: 1.5, name: 'Hero 1.5' }));
  await eventually(names, (seen) => seen === 'Hero 0,Hero 1,Hero 1.5,Hero 2');
  await server.run(heroes.get(0).update({ name: 'Hero 00' }));
  await eventually(names, (seen) => seen === 'Hero 00,Hero 1,Hero 1.5,Hero 2');
  await server.run(heroes.get(1.5).delete());
  await server.run(heroes.get(0).update({ name: 'Hero 0' }));
  await eventually(names, (seen) => seen === 'Hero 0,Hero 1,Hero 2,Hero 3');
  await page.click('.segments button:has-text("Tree")');
  await done(page);
});

test('a live result of many rows follows thousands of changes, and says which rows it shows', async () => {
  const many = r.db('test').table('many');
  await server.run(r.db('test').tableCreate('many', { durability: 'soft' }));
  await server.run(many.insert(r.range(3000).map((i) => ({ id: i, n: 0 }))));
  const page = await explorer();
  await page.check('label:has-text("Live") input');
  await query(page, "r.db('test').table('many')");
  await see(page, 'showing the last 1,000 of 3,000 rows');
  for (let n = 1; n <= 3; n++) await server.run(many.update({ n }, { durability: 'soft' }));
  await see(page, /of 3,000 rows, 12,000 changes/);
  await server.run(many.filter(r.row('id').ge(500)).delete());
  await see(page, '500 rows, ');
  await server.run(r.db('test').tableDrop('many'));
  await done(page);
});

test('a plan tells the rows looked at, and leads to the missing index', async () => {
  const page = await explorer();
  await query(page, "r.db('test').table('heroes').filter({name: 'Hero 5'})");
  await see(page, '1 row');
  await page.click('button:has-text("Explain")');
  await see(page, '300 rows looked at');
  // A tree: the result, the step where the rows are, the read with its rows and shards.
  assert.match(await text(page, '[data-name=plan]'), /^Stream\s+1 item[^\n]*\s+filter\s+where the rows are\s+test\.heroes\s+all rows\s+300 rows looked at, [^\n]*1 shard/);
  assert.equal(await page.locator('[data-name=plan] ul ul li').count(), 1);
  await query(page, "r.db('test').table('heroes').filter((hero) => hero('city').eq('Bonn'))");
  await see(page, '0 rows');
  await page.click('button:has-text("Explain")');
  await see(page, 'to find those with a certain city');
  await query(page, "r.db('test').table('heroes').map((hero) => hero('id')).sum()");
  await page.click('button:has-text("Explain")');
  await eventually(() => text(page, '[data-name=plan]').catch(() => ''), (seen) => /sum\s+where the rows are\s+map\s+where the rows are\s+test\.heroes\s+all rows\s+300 rows looked at, [\d.]+ (µs|ms), 1 shard/.test(seen));
  await query(page, "r.db('test').table('heroes').filter({name: 'Hero 5'})");
  await see(page, '1 row');
  await page.click('button:has-text("Explain")');
  await see(page, '300 rows looked at');
  await page.click('text=Make this index');
  await page.click('dialog button:has-text("Create")');
  await see(page, 'Ready');
  // The table is ready before its index is.
  await eventually(() => server.run(heroes.indexList()), (names) => names.join() === 'name');
  // An index that is there, and finds too many rows to be used, is offered as a query.
  await server.run(heroes.indexCreate('city'));
  await server.run(heroes.indexWait());
  await go(page, '/explorer');
  for (const [typed, wanted] of [
    ["r.db('test').table('heroes').filter({city: 'Oslo'})", "r.db('test').table('heroes').getAll('Oslo', {index: 'city'})"],
    ["r.db('test').table('heroes').filter(r.row('city').eq('Oslo')).limit(2)", "r.db('test').table('heroes').getAll('Oslo', {index: 'city'}).limit(2)"],
  ]) {
    await query(page, typed);
    await see(page, ' rows');
    await page.click('button:has-text("Explain")');
    await see(page, 'The index city is there and the query does not use it');
    assert.equal(await page.locator('text=Make this index').count(), 0);
    await page.click('button:has-text("Use it")');
    assert.equal(await text(page, '.cm-content'), wanted);
  }
  await query(page, "r.db('test').table('heroes').orderBy('city').limit(3)");
  await page.click('button:has-text("Explain")');
  await see(page, 'for an array of up to 3');
  await done(page);
});

test('tabs and the history stay', async () => {
  const page = await explorer();
  await query(page, "r.expr('first tab')");
  await see(page, 'first tab');
  await page.click('[aria-label="New query"]');
  await query(page, "r.expr('second tab')");
  await see(page, 'second tab');
  await page.reload();
  await page.waitForSelector('.cm-content');
  assert.equal(await page.locator('.query-tabs .tab').count(), 2);
  await page.click('button:has-text("History")');
  await page.locator('.list li', { hasText: 'second tab' }).locator('button').click();
  assert.match(await text(page, '.cm-content'), /second tab/);
  await page.click('.cm-content');
  await page.keyboard.press('Alt+ArrowUp');
  await page.keyboard.press('Alt+ArrowUp');
  assert.match(await text(page, '.cm-content'), /first tab/);
  await done(page);
});

test('results and marks belong to their tab', async () => {
  const page = await explorer();
  await query(page, "r.expr('of the first')");
  await see(page, 'of the first');
  await page.click('[aria-label="New query"]');
  await see(page, 'Results appear here');
  await query(page, 'r.table(');
  await page.waitForSelector('.cm-lintRange-error');
  await page.locator('.query-tabs .tab button').first().click();
  await eventually(() => text(page, '[aria-label=Result]').catch(() => ''), (seen) => seen.includes('of the first'));
  assert.equal(await page.locator('.cm-lintRange-error').count(), 0);
  assert.equal(await page.locator('main [role=alert]').count(), 0);
  await page.click('button:has-text("r.table(")');
  await page.waitForSelector('.cm-lintRange-error');
  await page.waitForSelector('main [role=alert]');
  await page.click('[aria-label="Close query 2"]');
  await eventually(() => text(page, '[aria-label=Result]').catch(() => ''), (seen) => seen.includes('of the first'));
  await done(page);
});

test('results are downloaded whole', async () => {
  const page = await explorer();
  await query(page, "r.range(5000).map((i) => ({id: i, text: r.expr('a,\"b\"')}))");
  await see(page, 'rows');
  for (const [format, check] of [['json', (all) => JSON.parse(all).length], ['jsonl', (all) => all.trim().split('\n').length], ['csv', (all) => all.trim().split('\r\n').length - 1]]) {
    const [file] = await Promise.all([page.waitForEvent('download'), page.selectOption('[aria-label="Download"]', format)]);
    assert.equal(check(fs.readFileSync(await file.path(), 'utf8')), 5000, format);
  }
  await done(page);
});

test('ten thousand rows and a hundred thousand lines are few elements, and the last is reached', async () => {
  const page = await explorer();
  const elements = () => page.evaluate(() => document.querySelectorAll('*').length);
  await query(page, "r.range(10000).map((i) => ({id: i, a: i.mul(2), b: r.expr('x')}))");
  await page.click('.segments button:has-text("Table")');
  await eventually(async () => {
    await page.evaluate(() => { const grid = document.querySelector('.grid'); grid.scrollTop = grid.scrollHeight; });
    return text(page, '.grid');
  }, (seen) => seen.includes('9999'), 20_000);
  assert.ok(await elements() <= 1500, `${await elements()} elements`);
  await query(page, 'r.range(99990).coerceTo("array")');
  await page.click('.segments button:has-text("Tree")');
  await eventually(async () => {
    await page.evaluate(() => { const lines = document.querySelector('.lines'); lines.scrollTop = lines.scrollHeight; });
    return text(page, '.lines');
  }, (seen) => seen.includes('99989'), 20_000);
  assert.ok(await elements() <= 1500, `${await elements()} elements`);
  await done(page);
});

test('a result is drawn: numbers over a field, and one bar for each group', async () => {
  const page = await explorer();
  await query(page, "r.range(200).map((i) => ({id: i, at: r.epochTime(i.mul(60)), load: i.mod(13), other: i}))");
  await page.click('.segments button:has-text("Chart")');
  await page.waitForSelector('[data-name=chart] canvas');
  assert.equal(await page.inputValue('[data-name=x]'), 'at');
  await page.click('[data-name=chart] button:has-text("other")');
  await see(page, 'other');
  await query(page, "r.db('test').table('heroes').group('city').count()");
  await see(page, 'reduction');
  await page.waitForSelector('[data-name=chart] canvas');
  assert.match(await page.getAttribute('[data-name=chart] .plot', 'aria-label'), /reduction/);
  await query(page, "r.expr([{a: 'x'}])");
  await see(page, 'There are no numbers to draw');
  await page.click('.segments button:has-text("Tree")');
  await done(page);
});

test('labels of a chart differ: days beside hours, seconds, small steps, long names', async () => {
  const page = await explorer();
  const drawn = async (typed, wanted) => {
    await query(page, typed);
    await eventually(() => page.evaluate(() => { const { x, y } = document.querySelector('[data-name=chart] .plot')?.dataset ?? {}; return [x ?? '', y ?? '']; }), wanted).catch((error) => { throw new Error(`${typed}: ${error.message}`); });
  };
  const differ = (labels) => { const all = labels.split('|').filter(Boolean); return all.length > 2 && new Set(all).size === all.length; };
  await query(page, 'r.expr([{a: 1}])');
  await page.click('.segments button:has-text("Chart")');
  await drawn("r.range(60).map((i) => ({at: r.time(2026, 1, 2, 'Z').add(i.mul(3600)), load: i.mod(13)}))", ([x]) => /\n3 Jan/.test(x) && /\d\d:00/.test(x));
  await drawn("r.range(60).map((i) => ({at: r.time(2026, 1, 2, 'Z').add(i.mul(86400)), load: i.mod(13)}))", ([x]) => differ(x) && /\d+ (Jan|Feb)/.test(x));
  await drawn("r.range(20).map((i) => ({at: r.time(2026, 1, 2, 'Z').add(i.mul(2)), load: i.mod(13)}))", ([x]) => differ(x) && /:\d\d:\d\d/.test(x));
  await drawn("r.range(20).map((i) => ({id: i, load: i.mod(3).mul(0.0001).add(123456)}))", ([, y]) => differ(y));
  await drawn("r.range(4).map((i) => ({name: r.expr('a very long name, number ').add(i.coerceTo('string')), load: i}))", ([x]) => differ(x) && x.includes('…'));
  await page.click('.segments button:has-text("Tree")');
  await done(page);
});

test('a closed tab can be had back', async () => {
  const page = await explorer();
  await query(page, "r.expr('kept')");
  await see(page, 'kept');
  await page.click('[aria-label="New query"]');
  await page.click('[aria-label="Close query 1"]');
  assert.ok(!(await text(page, '.query-tabs')).includes('kept'));
  await page.click('.toast button:has-text("Undo")');
  assert.match(await text(page, '.cm-content'), /kept/);
  await eventually(() => text(page, '[aria-label=Result]').catch(() => ''), (seen) => seen.includes('kept'));
  assert.equal(await page.locator('.query-tabs .tab').count(), 2);
  await done(page);
});

test('Stop is in sight on a small screen', async () => {
  const page = await explorer({ width: 360, height: 640 });
  await query(page, "r.range(300).coerceTo('array');\nwhile (true) {}");
  await see(page, '300 elements');
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
  assert.ok(await page.evaluate(() => scrollY) > 50);
  const stop = page.locator('button:has-text("Stop")');
  await stop.waitFor();
  const box = await stop.boundingBox();
  assert.ok(box.y >= 0 && box.y + box.height <= 640 && box.x + box.width <= 360, JSON.stringify(box));
  assert.ok(await stop.evaluate((button) => { const { x, y, width, height } = button.getBoundingClientRect(); return document.elementFromPoint(x + width / 2, y + height / 2)?.closest('button') === button; }), 'nothing covers it');
  await stop.click();
  await see(page, 'Stopped.');
  await done(page);
});

test('the raw text is copied whole, and a browser that forbids it is told', async () => {
  const page = await explorer();
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await query(page, "r.expr({long: 'x'}).merge(r.expr({long: r.range(3000).map((i) => 'abc').coerceTo('array').reduce((a, b) => a.add(b))}))");
  await page.click('.segments button:has-text("Raw")');
  await page.click('button:text-is("Copy")');
  await page.waitForSelector('.toast:has-text("Copied")');
  assert.equal(JSON.parse(await page.evaluate(() => navigator.clipboard.readText())).long.length, 9000);
  await page.evaluate(() => Object.defineProperty(navigator, 'clipboard', { value: undefined }));
  await page.click('button:text-is("Copy")');
  await page.waitForSelector('.toast.bad:has-text("does not let this page copy")');
  await page.click('.segments button:has-text("Tree")');
  await done(page);
});

test('fields whose names have slashes are lines of their own', async () => {
  const page = await explorer();
  await query(page, "r.expr({'a/b': 'first', a: {b: 'second', c: 3}})");
  await see(page, 'first');
  await page.click('[aria-label="Open a"]');
  await see(page, 'second');
  await done(page);
});

test('the query that is being typed outlives a look at earlier ones', async () => {
  const page = await explorer();
  await query(page, "r.expr('earlier')");
  await see(page, 'earlier');
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await page.keyboard.insertText('r.now() // a draft');
  await page.keyboard.press('Alt+ArrowUp');
  assert.match(await text(page, '.cm-content'), /earlier/);
  await page.keyboard.press('Alt+ArrowDown');
  assert.match(await text(page, '.cm-content'), /a draft/);
  await done(page);
});

test('markup, control and right-to-left characters are text', async () => {
  const page = await explorer();
  await query(page, "r.expr({'<img src=x onerror=alert(1)>': '<script>alert(2)</script>', bidi: 'a\\u202eb\\u0007c'})");
  await see(page, '<script>alert(2)</script>');
  await see(page, '\\u202e');
  assert.equal(await page.locator('main img').count(), 0);
  await page.click('.segments button:has-text("Raw")');
  await see(page, 'onerror');
  await done(page);
});

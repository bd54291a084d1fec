// Figures of the last day, and the slowest queries: what a server remembers.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, r, see, Server, text } = require('./harness.js');

let server;
const system = (name) => r.db('rethinkdb').table(name);
const heroes = r.db('test').table('heroes');
const metrics = () => server.run(system('_metrics').orderBy('interval_sec'));

before(async () => {
  server = await new Server().start();
  await server.run(r.db('test').tableCreate('heroes'));
  await server.run(heroes.insert(r.range(20_000).map((i) => ({ id: i, name: r.expr('Hero ').add(i.coerceTo('string')), n: i.mod(7) }))));
});
after(async () => { await closeBrowser(); await server.remove(); });

test('the overview has charts, which outlive a restart', async () => {
  const [hour] = await eventually(metrics, (rows) => rows[0].at.length > 0, 15_000);
  assert.equal(hour.interval_sec, 10);
  assert.equal(hour.at[0] % 10, 0);
  assert.ok(Math.max(...hour.writes_per_sec) > 0 && hour.memory_bytes[0] > 1e6);
  await server.kill();
  await server.start();
  const [again, day] = await metrics();
  assert.equal(again.at[0], hour.at[0]);
  assert.equal(day.at[0], Math.ceil(hour.at[0] / 120) * 120);
  const page = await open(server);
  await page.waitForSelector('[data-name=metrics] canvas');
  for (const title of ['Reads and writes', 'Latency', 'Memory', 'Disk']) await see(page, title);
  assert.equal(await page.locator('[data-name=metrics] canvas').count(), 4);
  await page.click('button:has-text("24 hours")');
  await eventually(() => page.url(), (url) => url.includes('span=day'));
  await go(page, '/servers/ada');
  await page.waitForSelector('[data-name=metrics] canvas');
  await done(page);
});

test('a damaged history leaves the server as it is', async () => {
  await eventually(metrics, (rows) => rows[0].at.length > 0, 15_000);
  await server.kill();
  const file = path.join(server.directory, 'data', 'metrics_history');
  fs.writeFileSync(file, 'nonsense');
  await server.start();
  assert.equal((await metrics())[0].at.length, 0);
  const page = await open(server);
  await see(page, 'The first figures appear within ten seconds');
  await page.waitForSelector('[data-name=metrics] canvas', { timeout: 25_000 });
  await done(page);
});

test('the slowest queries are listed with their plans, each user sees their own', async () => {
  await server.run(system('users').insert({ id: 'bob', password: 'secret' }));
  await server.run(r.grant('bob', { read: true }));
  // Long enough on any machine: each name twenty times.
  const long = (row) => Array(20).fill(row('name')).reduce((sum, name) => sum.add(name));
  const slow = (text) => heroes.map((row) => long(row).match(text)).filter((found) => found.ne(null)).orderBy(r.row('start')).limit(3);
  await server.run(slow('9+$'));
  await server.run(slow('bob|7+$'), 'bob', 'secret');
  // A query is listed when it has ended, which is after its answer.
  const listed = await eventually(() => server.run(system('_slow_queries'), 'bob', 'secret'), (found) => found.length >= 1);
  assert.ok( listed.every((query) => query.user === 'bob'), JSON.stringify(listed));
  const [query] = listed;
  assert.match(query.query, /bob\|7/);
  assert.ok(query.duration_sec >= 0.01);
  assert.equal(query.plan.rows_looked_at, 20_000);
  assert.equal(query.plan.reads[0].table, 'test.heroes');
  assert.equal((await server.run(r.db('rethinkdb').tableList())).some((name) => name.startsWith('_')), false);
  const page = await open(server, '/activity');
  await see(page, 'Slowest queries of the last hour');
  await see(page, 'bob|7');
  await page.locator('[data-name=slow] tr', { hasText: 'bob|7' }).locator('button').click();
  await see(page, '20,000 rows looked at');
  await page.click('a:has-text("Open in the explorer")');
  await eventually(() => text(page, '.cm-content').catch(() => ''), (seen) => seen.includes('bob|7'));
  await done(page);
});

// What open pages cost the servers. `REKINDLE_CONSOLE_FULL=1` runs the full size: four nodes, 1,000 tables, ten overviews.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, open, r, see, Server } = require('./harness.js');

const isFull = !!process.env.REKINDLE_CONSOLE_FULL;
const sized = (small, full) => (isFull ? full : small);
const servers = [];

before(async () => {
  servers.push(await new Server().start());
  for (let i = 1; i < sized(1, 4); i++) servers.push(await new Server(['--join', `localhost:${servers[0].ports.cluster}`], `node${i}`).start());
  const connection = await servers[0].connect();
  for (let i = 0; i < sized(20, 1000); i++) await r.db('test').tableCreate(`t${i}`, { replicas: sized(1, 3) }).run(connection);
  await r.db('test').wait().run(connection);
  await connection.close();
});
after(async () => { await closeBrowser(); for (const server of servers) await server.remove(); });

async function cpuSeconds() {
  let sum = 0;
  for (const server of servers) sum += Number(/process_cpu_seconds_total (\S+)/.exec((await server.request('GET', '/metrics')).text)[1]);
  return sum;
}

// Processor time of all servers, in percent of one core.
async function load(seconds) {
  const before = await cpuSeconds(), began = Date.now();
  await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
  return ((await cpuSeconds()) - before) / ((Date.now() - began) / 1000) * 100;
}

test('open pages cost little', async () => {
  const seconds = sized(4, 60);
  const without = await load(seconds);
  const pages = [];
  for (let i = 0; i < sized(2, 10); i++) pages.push(await open(servers[0], '/'));
  pages.push(await open(servers[0], '/tables/test/t0'));
  for (const page of pages.slice(0, -1)) await see(page, 'All is well');
  await see(pages.at(-1), 'The table is empty');
  await new Promise((resolve) => setTimeout(resolve, 2000));
  const withPages = await load(seconds);
  if (isFull) console.log(`${without.toFixed(2)} % of a core without pages, ${withPages.toFixed(2)} % with them`);
  assert.ok(withPages - without <= sized(10, 3), `${withPages - without} % of a core more`);
  for (const page of pages) await done(page);
});

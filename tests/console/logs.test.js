// Logs that are longer than a page.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, open, see, Server } = require('./harness.js');

const LINES = 500;
let server;

before(async () => {
  server = await new Server().start();
  await server.kill();
  // The log of an older time, in the form in which the server writes it.
  const file = path.join(server.directory, 'data', 'log_file');
  const old = Array.from({ length: LINES }, (_, i) => `2020-01-01T00:${String(Math.floor(i / 60)).padStart(2, '0')}:${String(i % 60).padStart(2, '0')}.000000 ${i}.000000s ${i === 3 ? 'warn' : 'info'}: the old message ${i}.`);
  fs.writeFileSync(file, `${old.join('\n')}\n${fs.readFileSync(file, 'utf8')}`);
  await server.start();
});
after(async () => { await closeBrowser(); await server.remove(); });

test('older messages are read on to the first, and a filter looks in all of them', async () => {
  const page = await open(server, '/logs');
  await see(page, 'Server ready');
  const rows = page.locator('.log tbody tr');
  assert.equal(await rows.count(), 200);
  for (const wanted of [400, LINES + 1]) {
    await page.click('button:has-text("Older messages")');
    await eventually(() => rows.count(), (count) => count >= wanted);
  }
  await see(page, /the old message 0\./);
  assert.equal(await page.locator('button:has-text("Older messages")').count(), 0);
  assert.match(await rows.first().innerText(), /Server ready/);
  await page.reload();
  await see(page, 'Server ready');
  await page.selectOption('select >> nth=0', 'warn');
  await see(page, 'the old message 3.');
  await page.selectOption('select >> nth=0', '');
  await page.fill('[aria-label="Find in messages"]', 'OLD message 7.');
  await eventually(() => rows.count(), (count) => count === 1);
  await see(page, 'the old message 7.');
  await done(page);
});

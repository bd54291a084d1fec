// The page of backups: its command lines work as they are.
'use strict';

const assert = require('node:assert');
const { execFileSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { cache, closeBrowser, done, eventually, open, program, r, see, Server, text } = require('./harness.js');

let server;
const tools = path.join(cache, 'venv', 'bin');

before(async () => {
  server = await new Server().start();
  await server.run(r.dbCreate('shop'));
  for (const name of ['orders', 'prices']) await server.run(r.db('shop').tableCreate(name));
  await server.run(r.db('shop').table('orders').insert(r.range(100).map((i) => ({ id: i }))));
});
after(async () => { await closeBrowser(); await server.remove(); });

// The command runs in the server's directory, with the tested program in place of the installed one.
function shell(command) {
  const quoted = `'${program().replaceAll("'", "'\\''")}'`;
  return execFileSync('/bin/sh', ['-c', command.replace(/^rekindle/, quoted)], { cwd: server.directory, env: { ...process.env, PATH: `${tools}:${process.env.PATH}` }, stdio: ['ignore', 'pipe', 'pipe'] });
}

test('the commands of chosen tables write and restore them', async () => {
  const page = await open(server, '/backups');
  await see(page, 'All databases and tables.');
  await eventually(() => text(page, '[data-name=dump]'), (seen) => seen === `rekindle dump -c localhost:${server.ports.driver} -f backup.tar.gz`);
  await page.fill('[data-name=part]', 'shop.nothing');
  await page.keyboard.press('Enter');
  await page.waitForSelector('.toast.bad:has-text("There is no database or table")');
  await page.fill('[data-name=part]', 'shop.orders');
  await page.keyboard.press('Enter');
  const dump = await eventually(() => text(page, '[data-name=dump]'), (seen) => seen.includes('-e shop.orders'));
  shell(dump);
  assert.ok(fs.existsSync(path.join(server.directory, 'backup.tar.gz')));
  await server.run(r.db('shop').tableDrop('orders'));
  shell(await text(page, '[data-name=restore]'));
  assert.equal(await server.run(r.db('shop').table('orders').count()), 100);
  await done(page);
});

test('user, password, certificate and names of files are in the commands, and are copied', async () => {
  const page = await open(server, '/backups');
  await page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
  await page.fill('[data-name=user]', "o'neil");
  await page.check('[data-name=password]');
  await page.fill('[data-name=certificate]', 'my ca.pem');
  await page.check('[data-name=force]');
  const wanted = `rekindle restore backup.tar.gz -c localhost:${server.ports.driver} -u 'o'\\''neil' -p --tls-cert 'my ca.pem' --force`;
  await eventually(() => text(page, '[data-name=restore]'), (seen) => seen === wanted);
  await page.click('[aria-label="Copy the command that restores"]');
  await page.waitForSelector('.toast:has-text("Copied")');
  assert.equal(await page.evaluate(() => navigator.clipboard.readText()), wanted);
  await done(page);
});

// Logins and the sessions that they begin.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, go, open, query, r, see, Server, text } = require('./harness.js');

const users = r.db('rethinkdb').table('users');
let server;

before(async () => { server = await new Server().start(); });
after(async () => { await closeBrowser(); await server.remove(); });

async function login(page, user, password) {
  await page.fill('input[autocomplete=username]', user);
  await page.fill('input[type=password]', password);
  await page.click('button.primary');
}

test('while admin has no password no login is asked, and a banner offers to set one', async () => {
  const page = await open(server);
  await see(page, 'All is well');
  assert.match(await text(page, '.main'), /admin has no password/);
  await page.click('text=Set a password');
  await page.fill('dialog input >> nth=0', 'sesame');
  await page.fill('dialog input >> nth=1', 'sesam');
  await page.click('dialog button.primary');
  await page.waitForSelector('text=The two passwords differ.');
  await page.fill('dialog input >> nth=1', 'sesame');
  await page.click('dialog button.primary');
  await eventually(async () => (await text(page, '.main')).includes('admin has no password'), (seen) => !seen);
  await see(page, 'All is well');
  assert.deepEqual(await server.run(users.get('admin'), 'admin', 'sesame'), { id: 'admin', password: true });
  await page.reload();
  await see(page, 'All is well');
  await done(page);
});

test('a wrong password and an unknown user have the same answer', async () => {
  const page = await open(server);
  for (const user of ['admin', 'nobody']) {
    await login(page, user, 'wrong');
    await page.waitForSelector('text=Wrong user name or password.');
    await page.fill('input[type=password]', '');
  }
  await login(page, 'admin', 'sesame');
  await see(page, 'All is well');
  await done(page);
});

test('names and passwords of any letters log in', async () => {
  await server.run(users.insert({ id: 'Zoë, a=b', password: 'pa ß ①' }), 'admin', 'sesame');
  const page = await open(server);
  await login(page, 'Zoë, a=b', 'pa ß ①');
  await eventually(async () => (await text(page, '.side')).includes('Zoë, a=b'));
  await done(page);
});

test('a logout ends the session, also for its cookie', async () => {
  const page = await open(server);
  await login(page, 'admin', 'sesame');
  await see(page, 'All is well');
  const cookie = (await page.context().cookies()).find((one) => one.name === server.cookie);
  await page.click('[aria-label="Log out"]');
  await page.waitForSelector('input[autocomplete=username]');
  const answer = await server.request('GET', '/api/session', { headers: { cookie: `${cookie.name}=${cookie.value}` } });
  assert.equal(answer.status, 401);
  await done(page);
});

test('another password ends the session at once, and no text is lost', async () => {
  await server.run(users.insert({ id: 'bob', password: 'one' }), 'admin', 'sesame');
  const page = await open(server, '/explorer');
  await login(page, 'bob', 'one');
  await query(page, 'r.expr(12345)');
  await see(page, '12345');
  // The login is above a dialog that is open, which keeps its text.
  await page.click('button:text-is("Save")');
  await page.fill('[data-name=saved-name]', 'Typed');
  await server.run(users.get('bob').update({ password: 'two' }), 'admin', 'sesame');
  await page.waitForSelector('input[autocomplete=username]', { timeout: 4000 });
  await page.keyboard.press('Escape');
  await page.keyboard.press('Escape');
  await page.fill('input[autocomplete=username]', 'bob');
  await page.fill('input[type=password]', 'two');
  await page.click('button:text-is("Log in")');
  await page.waitForSelector('.over', { state: 'detached' });
  assert.equal(await page.inputValue('[data-name=saved-name]'), 'Typed');
  await page.keyboard.press('Escape');
  assert.match(await text(page, '.cm-content'), /12345/);
  await server.run(users.get('bob').delete(), 'admin', 'sesame');
  await page.waitForSelector('input[autocomplete=username]', { timeout: 4000 });
  await done(page);
});

test('the next user finds nothing of the one before', async () => {
  await server.run(users.insert({ id: 'carl', password: 'one' }), 'admin', 'sesame');
  const page = await open(server, '/explorer');
  await login(page, 'admin', 'sesame');
  await query(page, "r.expr('of admin')");
  await eventually(() => text(page, '[aria-label=Result]').catch(() => ''), (seen) => seen.includes('of admin'));
  await page.click('[aria-label="Log out"]');
  await login(page, 'carl', 'one');
  await eventually(async () => (await text(page, '.foot').catch(() => '')).includes('carl'));
  await go(page, '/explorer');
  await see(page, 'Results appear here');
  await page.click('button:has-text("History")');
  await see(page, 'No query yet');
  assert.ok(!(await text(page)).includes('of admin'));
  // Another one logs in while the page is open: a session that another tab of this browser has begun.
  await query(page, "r.expr('of carl')");
  await eventually(() => text(page, '[aria-label=Result]').catch(() => ''), (seen) => seen.includes('of carl'));
  await server.run(users.get('carl').update({ password: 'two' }), 'admin', 'sesame');
  await login(page, 'admin', 'sesame');
  await eventually(async () => (await text(page, '.foot').catch(() => '')).includes('admin'));
  await go(page, '/explorer');
  await page.waitForSelector('.cm-content');
  assert.ok(!(await text(page)).includes('of carl'));
  assert.match(await text(page, '.cm-content'), /of admin/);
  await done(page);
});

test('nobody else becomes admin when their session ends', async () => {
  const page = await open(server);
  await login(page, 'carl', 'two');
  await eventually(async () => (await text(page, '.foot').catch(() => '')).includes('carl'));
  await server.run(users.get('admin').update({ password: false }), 'admin', 'sesame');
  try {
    await server.run(users.get('carl').delete());
    await page.waitForSelector('input[autocomplete=username]', { timeout: 4000 });
    await see(page, 'Log in');
    assert.ok(!(await text(page, '.foot')).includes('admin'));
    await done(page);
  } finally {
    await server.run(users.get('admin').update({ password: 'sesame' }));
  }
});

test('failed logins wait longer each time', async () => {
  const origin = { origin: `http://localhost:${server.ports.http}` };
  const attempt = async () => {
    const began = Date.now();
    const first = await server.request('POST', '/api/login/begin', { headers: origin, body: 'n,,n=eve,r=abc' });
    const [exchange, answer] = first.text.split('\n');
    const nonce = answer.match(/r=([^,]+)/)[1];
    const second = await server.request('POST', '/api/login/finish', { headers: origin, body: `${exchange}\nc=biws,r=${nonce},p=AAAA` });
    assert.equal(second.status, 401);
    return Date.now() - began;
  };
  const times = [];
  for (let i = 0; i < 4; i++) times.push(await attempt());
  assert.ok(times[3] > 600 && times[3] > times[1], `milliseconds: ${times}`);
});

// What is refused: without a session, from other pages, under other names; and what a script of the explorer reaches.
'use strict';

const assert = require('node:assert');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { after, before, test } = require('node:test');

const { closeBrowser, done, eventually, open, query, Server, text } = require('./harness.js');

let server, origin;

before(async () => {
  server = await new Server(['--http-allowed-host', 'db.example.com']).start();
  origin = `http://localhost:${server.ports.http}`;
});
after(async () => { await closeBrowser(); await server.remove(); });

const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': 'AAAAAAAAAAAAAAAAAAAAAA==' };
const post = (where, headers = {}, body = '') => server.request('POST', where, { headers: { origin, ...headers }, body });

test('without a session only files, health, metrics and the login answer', async () => {
  for (const where of ['/', '/index.html', '/app.js', '/editor.js', '/style.css', '/sandbox.html', '/health', '/metrics']) assert.equal((await server.request('GET', where)).status, 200, where);
  assert.equal((await server.request('GET', '/api/session')).status, 401);
  assert.ok(!(await server.request('GET', '/api/session')).text.includes('ada'), 'the name of the server');
  assert.equal((await server.request('GET', '/api/reql', { headers: { origin, ...upgrade } })).status, 401);
  for (const where of ['/ajax/reql/open-new-connection', '/ajax/reql/?conn_id=a', '/ajax/reql/close-connection?conn_id=a']) assert.equal((await post(where)).status, 401, where);
  for (const where of ['/api', '/api/x', '/../Cargo.toml', '/%2e%2e/x', '/dist/app.js']) assert.equal((await server.request('GET', where)).status, 404, where);
  const made = { cookie: `${server.cookie}=${'0'.repeat(64)}` };
  assert.equal((await server.request('GET', '/api/reql', { headers: { origin, ...upgrade, ...made } })).status, 401);
});

test('a request for another name is misdirected', async () => {
  for (const host of ['evil.com', 'localhost.evil.com', `evil.com:${server.ports.http}`, 'sub.db.example.com']) {
    const answer = await server.request('GET', '/', { headers: { host } });
    assert.equal(answer.status, 421, host);
    assert.match(answer.text, /--http-allowed-host/);
  }
  for (const host of ['localhost', '127.0.0.1', '[::1]:1', 'db.example.com', os.hostname()]) assert.equal((await server.request('GET', '/', { headers: { host } })).status, 200, host);
  for (const where of ['/health', '/metrics']) assert.equal((await server.request('GET', where, { headers: { host: 'scraper.internal' } })).status, 200, where);
});

test('a page of another origin has no effect', async () => {
  const cookie = await server.openSession();
  for (const foreign of ['http://evil.com', 'http://localhost:1', 'null', `${origin}.evil.com`]) {
    for (const where of ['/api/login/begin', '/api/login/open', '/api/logout', '/ajax/reql/open-new-connection']) {
      assert.equal((await server.request('POST', where, { headers: { cookie, origin: foreign } })).status, 403, `${where} from ${foreign}`);
    }
    assert.equal((await server.request('GET', '/api/reql', { headers: { cookie, ...upgrade, origin: foreign } })).status, 403);
  }
  assert.equal((await server.request('POST', '/api/logout', { headers: { cookie } })).status, 403, 'without an origin');
  assert.equal((await server.request('GET', '/api/reql', { headers: { cookie, ...upgrade, origin } })).status, 101);
});

test('answers are protected, and the cookie is the session\'s alone', async () => {
  const page = await server.request('GET', '/');
  const policy = page.headers['content-security-policy'];
  assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self' 'nonce-[0-9a-f]{32}'/);
  assert.match(policy, /frame-ancestors 'none'; base-uri 'none'; form-action 'none'/);
  assert.equal(page.headers['x-frame-options'], 'DENY');
  assert.equal(page.headers['x-content-type-options'], 'nosniff');
  assert.equal(page.headers['referrer-policy'], 'no-referrer');
  assert.notEqual((await server.request('GET', '/')).headers['content-security-policy'], policy, 'a nonce is used once');
  assert.ok(page.text.includes(policy.match(/nonce-([0-9a-f]+)/)[1]));
  const sandbox = await server.request('GET', '/sandbox.html');
  assert.match(sandbox.headers['content-security-policy'], /^sandbox allow-scripts; default-src 'none'; script-src 'sha256-[^']+' 'unsafe-eval'; worker-src blob:; frame-ancestors 'self'$/);
  const answer = await post('/api/login/open');
  assert.match(answer.headers['set-cookie'][0], new RegExp(`^${server.cookie}=[0-9a-f]{64}; Path=/; HttpOnly; SameSite=Strict$`));
});

test('files are compressed, and browsers keep them', async () => {
  const dist = path.join(__dirname, '..', '..', 'ui', 'dist');
  const plain = await server.request('GET', '/app.js');
  assert.ok(plain.bytes.equals(fs.readFileSync(path.join(dist, 'app.js'))));
  const small = await server.request('GET', '/app.js', { headers: { 'accept-encoding': 'br, gzip' } });
  assert.equal(small.headers['content-encoding'], 'gzip');
  assert.ok(small.bytes.length < plain.bytes.length / 2);
  const again = await server.request('GET', '/app.js', { headers: { 'if-none-match': small.headers.etag } });
  assert.deepEqual([again.status, again.bytes.length], [304, 0]);
});

test('--web-static-directory serves a folder, and only what is in it', async () => {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'rekindle-static-'));
  const other = new Server(['--web-static-directory', folder]);
  await assert.rejects(other.start(), /index\.html/);
  fs.writeFileSync(path.join(folder, 'index.html'), '<p>mine');
  try {
    await other.start();
    assert.equal((await other.request('GET', '/')).text, '<p>mine');
    assert.equal((await other.request('GET', '/app.js')).status, 404);
  } finally {
    await other.remove();
    fs.rmSync(folder, { recursive: true });
  }
});

test('with TLS the cookie is secure, and pages use it', async () => {
  const files = path.join(__dirname, '..', 'drivers', 'tls');
  const secure = await new Server(['--http-tls-key', path.join(files, 'server.key'), '--http-tls-cert', path.join(files, 'server.pem')]).start();
  try {
    const answer = await secure.request('POST', '/api/login/open', { headers: { origin: `https://localhost:${secure.ports.http}` } });
    assert.match(answer.headers['set-cookie'][0], /; HttpOnly; SameSite=Strict; Secure$/);
    const page = await open(secure, '/explorer');
    await query(page, 'r.expr(4).mul(8)');
    await eventually(() => text(page), (seen) => seen.includes('32'));
    await done(page);
  } finally {
    await secure.remove();
  }
});

test('a script reaches no network, cookie, storage or page', async () => {
  const page = await open(server, '/explorer');
  const tries = {
    fetch: "await fetch(new URL('/api/session', 'http://localhost:1')).then(() => 'reached', (e) => 'refused')",
    socket: "(() => { try { const s = new WebSocket('ws://localhost:1'); return 'made' } catch (e) { return 'refused' } })()",
    scripts: "(() => { try { importScripts('http://localhost:1/x.js'); return 'reached' } catch (e) { return 'refused' } })()",
    document: 'typeof document', cookies: 'typeof cookieStore', storage: 'typeof localStorage',
    database: "await new Promise((done) => { try { const o = indexedDB.open('x'); o.onerror = () => done('refused'); o.onsuccess = () => done('reached') } catch (e) { done('refused') } })",
    origin: 'self.origin',
  };
  await query(page, `({${Object.entries(tries).map(([name, code]) => `${name}: ${code}`).join(', ')}})`);
  const seen = await eventually(() => text(page, '.lines').catch(() => ''), (shown) => shown.includes('origin'));
  const values = Object.fromEntries([...seen.replaceAll('\n', ' ').matchAll(/(\w+) ?:\s+"([^"]*)"/g)].map(([, name, value]) => [name, value]));
  assert.equal(values.origin, 'null');
  for (const name of ['fetch', 'scripts', 'database']) assert.equal(values[name], 'refused', name);
  for (const name of ['document', 'storage']) assert.equal(values[name], 'undefined', name);
  // The policy's reports of these attempts are wanted here.
  page.problems = page.problems.filter((problem) => !/Content Security Policy|Refused to|localhost:1/.test(problem));
  await done(page);
});

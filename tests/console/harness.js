// Nodes with a console, and a browser that looks at it.
'use strict';

const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const http = require('node:http');
const https = require('node:https');
const { createRequire } = require('node:module');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');

const cache = process.env.REKINDLE_CACHE || path.join(os.homedir(), '.cache', 'rekindle');
const modules = createRequire(path.join(cache, 'console', 'package.json'));
const { chromium } = modules('playwright-core');
const r = modules('rethinkdb');

function program() {
  if (process.env.REKINDLE_PROGRAM) return process.env.REKINDLE_PROGRAM;
  const target = process.env.CARGO_TARGET_DIR || path.join(cache, 'target');
  return path.join(target, 'release', 'rekindle');
}

class Server {
  constructor(flags = [], name = 'ada') {
    this.flags = flags;
    this.name = name;
    this.scheme = flags.includes('--http-tls-key') ? 'https' : 'http';
    this.directory = fs.mkdtempSync(path.join(os.tmpdir(), 'rekindle-console-'));
    this.ports = { driver: 0, cluster: 0, http: 0 };
    this.host = 'localhost';
  }

  // Resolves when the process reports that it is ready. The ports of the first start are kept.
  start() {
    const ports = Object.entries(this.ports).flatMap(([service, port]) => [`--${service}-port`, String(port)]);
    const files = process.env.REKINDLE_CONSOLE ? ['--web-static-directory', process.env.REKINDLE_CONSOLE] : [];
    const flags = ['--directory', path.join(this.directory, 'data'), '--server-name', this.name, '--cache-size', '100', ...ports, ...files, ...this.flags];
    this.process = spawn(program(), flags, { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = [];
    return new Promise((resolve, reject) => {
      for (const stream of [this.process.stdout, this.process.stderr]) {
        readline.createInterface({ input: stream }).on('line', (line) => {
          said.push(line);
          const found = line.match(/(client driver|intracluster|administrative HTTP) connections on port (\d+)/);
          if (found) this.ports[{ 'client driver': 'driver', intracluster: 'cluster', 'administrative HTTP': 'http' }[found[1]]] = Number(found[2]);
          if (line.includes('Server ready')) resolve(this);
        });
      }
      this.process.on('error', reject);
      this.process.on('exit', (status) => reject(new Error(`the node left with ${status}:\n${said.join('\n')}`)));
    });
  }

  get url() { return `${this.scheme}://${this.host}:${this.ports.http}/`; }
  get cookie() { return `rekindle_session_${this.ports.http}`; }

  connect(user = 'admin', password = '') { return r.connect({ host: 'localhost', port: this.ports.driver, user, password }); }

  async run(query, user, password) {
    const connection = await this.connect(user, password);
    try {
      const answer = await query.run(connection);
      return answer && typeof answer.toArray === 'function' ? await answer.toArray() : answer;
    } finally {
      await connection.close();
    }
  }

  // Follows a query until it fails; resolves to the error.
  async follow(query) {
    const connection = await this.connect();
    const cursor = await query.run(connection);
    const ended = new Promise((resolve) => { cursor.each((error) => { if (error) resolve(error); }); });
    return { ended: ended.finally(() => connection.close().catch(() => {})) };
  }

  kill() {
    return new Promise((resolve) => {
      this.process.removeAllListeners('exit');
      this.process.on('exit', resolve);
      this.process.kill('SIGKILL');
    });
  }

  async remove() {
    if (this.process && this.process.exitCode === null && this.process.signalCode === null) await this.kill();
    fs.rmSync(this.directory, { recursive: true, force: true });
  }

  // One request. Headers are sent as they are given.
  request(method, where, { headers = {}, body = '' } = {}) {
    const options = { host: 'localhost', port: this.ports.http, method, path: where, headers, rejectUnauthorized: false, agent: false };
    return new Promise((resolve, reject) => {
      const request = (this.scheme === 'https' ? https : http).request(options, (answer) => {
        const parts = [];
        answer.on('data', (part) => parts.push(part));
        answer.on('end', () => resolve({ status: answer.statusCode, headers: answer.headers, bytes: Buffer.concat(parts), text: Buffer.concat(parts).toString() }));
      });
      request.on('error', reject);
      request.on('upgrade', (answer, socket) => { socket.destroy(); resolve({ status: 101, headers: answer.headers, text: '' }); });
      request.end(body);
    });
  }

  // The cookie of a session that needs no login.
  async openSession() {
    const answer = await this.request('POST', '/api/login/open', { headers: { origin: `http://localhost:${this.ports.http}` } });
    assert.equal(answer.status, 200, answer.text);
    return answer.headers['set-cookie'][0].split(';')[0];
  }
}

let browser = null;

async function launch() {
  browser ??= await chromium.launch({ executablePath: '/usr/bin/chromium', args: ['--no-sandbox', '--disable-gpu'] });
  return browser;
}

async function closeBrowser() {
  await browser?.close();
  browser = null;
}

// A page with a profile of its own. `problems` has its errors and its requests to other hosts.
async function open(server, address = '/', { width = 1280, height = 800, theme = 'light', before } = {}) {
  const context = await (await launch()).newContext({ viewport: { width, height }, colorScheme: theme, reducedMotion: 'reduce', acceptDownloads: true, ignoreHTTPSErrors: true });
  context.setDefaultTimeout(10_000);
  if (before) await context.addInitScript(before);
  const page = await context.newPage();
  page.problems = [];
  page.on('pageerror', (error) => page.problems.push(String(error.stack)));
  page.on('console', (message) => {
    const text = message.text();
    // Answers with a status that a test provokes are reported, too.
    if (message.type() === 'error' && !/Failed to load resource|WebSocket connection/.test(text)) page.problems.push(text);
  });
  page.on('dialog', (dialog) => { page.problems.push(`a dialog: ${dialog.message()}`); dialog.dismiss(); });
  page.on('request', (request) => { if (!request.url().startsWith(server.url) && !/^(blob|data):/.test(request.url())) page.problems.push(`a request to ${request.url()}`); });
  await page.goto(`${server.url}#${address}`);
  return page;
}

async function done(page) {
  assert.deepEqual(page.problems, []);
  await page.context().close();
}

const go = (page, address) => page.evaluate((hash) => { location.hash = hash; }, address);

// Runs a query in the explorer; the page must be there.
async function query(page, text) {
  await page.waitForSelector('.cm-content');
  await page.click('.cm-content');
  // Typed over a selection, Chromium first makes elements with a style of its own, which the policy refuses.
  await page.keyboard.press('Control+a');
  await page.keyboard.press('Delete');
  await page.keyboard.insertText(text);
  await page.keyboard.press('Shift+Enter');
}

// Waits until `look` gives something that `is` accepts.
async function eventually(look, is = Boolean, milliseconds = 10_000) {
  const until = Date.now() + milliseconds;
  for (;;) {
    const seen = await look();
    if (is(seen)) return seen;
    if (Date.now() > until) throw new Error(`still ${JSON.stringify(seen)} after ${milliseconds} ms`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
}

const text = (page, selector = 'main') => page.locator(selector).first().innerText();
const see = (page, wanted) => eventually(() => text(page), (seen) => (typeof wanted === 'string' ? seen.includes(wanted) : wanted.test(seen)));

module.exports = { cache, closeBrowser, done, eventually, go, modules, open, program, query, r, see, Server, text };

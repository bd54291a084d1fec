// `/ajax/reql`: the forms and texts of RethinkDB, and the console without a WebSocket.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { closeBrowser, done, open, query, see, Server, text } = require('./harness.js');

let server, headers;

before(async () => {
  server = await new Server().start();
  headers = { origin: `http://localhost:${server.ports.http}`, cookie: await server.openSession() };
});
after(async () => { await closeBrowser(); await server.remove(); });

const post = (where, body = '') => server.request('POST', `/ajax/reql/${where}`, { headers, body });

function frame(token, json) {
  const head = Buffer.alloc(8);
  head.writeBigUInt64LE(BigInt(token));
  return Buffer.concat([head, Buffer.from(json)]);
}

async function ask(id, token, json) {
  const answer = await post(`?conn_id=${id}`, frame(token, json));
  assert.equal(answer.status, 200, answer.text);
  assert.equal(Number(answer.bytes.readBigUInt64LE(0)), token);
  assert.equal(answer.bytes.readUInt32LE(8), answer.bytes.length - 12);
  return JSON.parse(answer.bytes.subarray(12));
}

test('a connection answers queries with a profile, continues them, and is closed', async () => {
  const id = (await post('open-new-connection?cacheBuster=1')).text;
  const one = await ask(id, 1, '[1,1]');
  assert.deepEqual([one.t, one.r], [1, [1]]);
  assert.ok(Array.isArray(one.p), 'a profile');
  const first = await ask(id, 2, '[1,[173,[1000]],{"max_batch_rows":10}]');
  assert.equal(first.t, 3);
  const more = await ask(id, 2, '[2]');
  assert.ok(more.r.length > 0);
  assert.deepEqual((await ask(id, 2, '[3]')).r, []);
  assert.equal((await post(`close-connection?conn_id=${id}`)).status, 200);
  const closed = await ask(id, 3, '[1,1]');
  assert.deepEqual([closed.t, closed.r], [16, ['This HTTP connection is not open.']]);
});

test('bad requests have the texts of RethinkDB', async () => {
  const id = (await post('open-new-connection')).text;
  const refused = async (where, body) => { const { status, text: said } = await post(where, body); return [status, said]; };
  assert.deepEqual(await refused('', frame(1, '[1,1]')), [400, 'Required parameter "conn_id" missing']);
  assert.deepEqual(await refused(`?conn_id=${id}`, 'short'), [400, 'Client is buggy (request too small).']);
  assert.deepEqual(await refused(`?conn_id=${id}`, frame(1, '[1,1,{"noreply":true}]')), [400, 'noreply queries are not supported over HTTP']);
  const garbage = await ask(id, 4, 'garbage');
  assert.equal(garbage.t, 16);
});

test('two queries at once are answered each', async () => {
  const id = (await post('open-new-connection')).text;
  const answers = await Promise.all([1, 2, 3, 4, 5].map((n) => ask(id, n, `[1,${n}]`)));
  assert.deepEqual(answers.map((answer) => answer.r[0]), [1, 2, 3, 4, 5]);
});

test('where a proxy allows no WebSocket, the console uses plain requests and says so', async () => {
  const page = await open(server, '/explorer', { before: () => { globalThis.WebSocket = class { constructor() { setTimeout(() => this.onclose({ code: 1006 }), 10); } close() {} }; } });
  await page.waitForSelector('text=allows no WebSocket');
  await query(page, 'r.expr(6).mul(7)');
  await see(page, '42');
  assert.match(await text(page, '.main'), /plain requests/);
  await done(page);
});

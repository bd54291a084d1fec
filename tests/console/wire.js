// Logins and queries as the console sends them, without a browser.
'use strict';

const assert = require('node:assert');
const crypto = require('node:crypto');
const http = require('node:http');

const originOf = (server) => `http://localhost:${server.ports.http}`;

// Logs a user in by the two posts of SCRAM-SHA-256; resolves to the headers of the session's requests.
async function login(server, user, password) {
  const origin = originOf(server);
  const post = async (where, body) => {
    const answer = await server.request('POST', where, { headers: { origin }, body });
    assert.equal(answer.status, 200, answer.text);
    return answer;
  };
  const hmac = (key, text) => crypto.createHmac('sha256', key).update(text).digest();
  const nonce = crypto.randomBytes(18).toString('base64');
  const first = `n=${user},r=${nonce}`;
  const [exchange, serverFirst] = (await post('/api/login/begin', `n,,${first}`)).text.split('\n');
  const fields = new Map(serverFirst.split(',').map((part) => [part[0], part.slice(2)]));
  const salted = crypto.pbkdf2Sync(password, Buffer.from(fields.get('s'), 'base64'), Number(fields.get('i')), 32, 'sha256');
  const withoutProof = `c=biws,r=${fields.get('r')}`;
  const clientKey = hmac(salted, 'Client Key');
  const signature = hmac(crypto.createHash('sha256').update(clientKey).digest(), `${first},${serverFirst},${withoutProof}`);
  const proof = clientKey.map((byte, i) => byte ^ signature[i]);
  const answer = await post('/api/login/finish', `${exchange}\n${withoutProof},p=${Buffer.from(proof).toString('base64')}`);
  return { origin, cookie: answer.headers['set-cookie'][0].split(';')[0] };
}

// The frame of a query: its token, with the length of the JSON where `hasLength`, and the JSON.
function frame(token, json, hasLength) {
  const head = Buffer.alloc(hasLength ? 12 : 8);
  head.writeBigUInt64LE(BigInt(token));
  if (hasLength) head.writeUInt32LE(Buffer.byteLength(json), 8);
  return Buffer.concat([head, Buffer.from(json)]);
}

// Queries over the WebSocket of a session.
class Socket {
  static open(server, headers) {
    const upgrade = { connection: 'Upgrade', upgrade: 'websocket', 'sec-websocket-version': '13', 'sec-websocket-key': crypto.randomBytes(16).toString('base64') };
    return new Promise((resolve, reject) => {
      const request = http.get({ host: 'localhost', port: server.ports.http, path: '/api/reql', headers: { ...headers, ...upgrade }, agent: false });
      request.on('upgrade', (_, stream) => resolve(new Socket(stream)));
      request.on('response', (answer) => reject(new Error(`no WebSocket: ${answer.statusCode}`)));
      request.on('error', reject);
    });
  }

  constructor(stream) {
    this.stream = stream;
    this.waiting = new Map();
    this.token = 0;
    let messages = Buffer.alloc(0), frames = Buffer.alloc(0);
    stream.on('data', (more) => {
      messages = Buffer.concat([messages, more]);
      for (;;) {
        const short = messages.length < 2 ? 0 : messages[1] & 127;
        const head = short < 126 ? 2 : short === 126 ? 4 : 10;
        if (messages.length < head) return;
        const length = short < 126 ? short : short === 126 ? messages.readUInt16BE(2) : Number(messages.readBigUInt64BE(2));
        if (messages.length < head + length) return;
        frames = Buffer.concat([frames, messages.subarray(head, head + length)]);
        messages = messages.subarray(head + length);
        while (frames.length >= 12 && frames.length >= 12 + frames.readUInt32LE(8)) {
          const end = 12 + frames.readUInt32LE(8);
          this.waiting.get(Number(frames.readBigUInt64LE(0)))(JSON.parse(frames.subarray(12, end)));
          frames = frames.subarray(end);
        }
      }
    });
  }

  ask(json) {
    const token = ++this.token;
    const body = frame(token, json, true);
    const mask = crypto.randomBytes(4);
    const head = Buffer.alloc(body.length < 126 ? 2 : 4);
    head[0] = 0x82;
    head[1] = 0x80 | (body.length < 126 ? body.length : 126);
    if (body.length >= 126) head.writeUInt16BE(body.length, 2);
    this.stream.write(Buffer.concat([head, mask, body.map((byte, i) => byte ^ mask[i % 4])]));
    return new Promise((resolve) => { this.waiting.set(token, resolve); });
  }

  close() { this.stream.destroy(); }
}

// Queries over `/ajax/reql` of a session.
class Requests {
  static async open(server, headers) {
    const answer = await server.request('POST', '/ajax/reql/open-new-connection', { headers });
    assert.equal(answer.status, 200, answer.text);
    return new Requests(server, headers, answer.text);
  }

  constructor(server, headers, id) {
    Object.assign(this, { server, headers, id, token: 0 });
  }

  async ask(json) {
    const answer = await this.server.request('POST', `/ajax/reql/?conn_id=${this.id}`, { headers: this.headers, body: frame(++this.token, json, false) });
    assert.equal(answer.status, 200, answer.text);
    return JSON.parse(answer.bytes.subarray(12));
  }
}

module.exports = { login, Requests, Socket };

// The values that a server answers to the conformance cases, as the JSON that it sends.
'use strict';

const assert = require('node:assert');
const { spawn } = require('node:child_process');
const fs = require('node:fs');
const net = require('node:net');
const path = require('node:path');

const { cache } = require('./harness.js');

const root = path.join(__dirname, '..', '..');

// The folder of the cases, as `cargo xtask conformance` finds it; nothing if there is none.
function folder() {
  if (process.env.REKINDLE_CONFORMANCE) return process.env.REKINDLE_CONFORMANCE;
  const beside = path.join(root, '..');
  return fs.readdirSync(beside).map((name) => path.join(beside, name, 'conformance')).find((found) => fs.existsSync(path.join(found, 'run.py')));
}

// The items of the array `r` of a response, as text: numbers keep their spelling.
function items(response) {
  const found = [];
  let start = response.indexOf('"r":[') + 5, depth = 0, isText = false;
  for (let at = start; at < response.length; at++) {
    const letter = response[at];
    if (isText) { if (letter === '\\') at += 1; else isText = letter !== '"'; continue; }
    if (letter === '"') isText = true;
    else if (letter === '[' || letter === '{') depth += 1;
    else if ((letter === ']' || letter === '}') && depth-- === 0) { if (at > start) found.push(response.slice(start, at)); break; }
    else if (letter === ',' && depth === 0) { found.push(response.slice(start, at)); start = at + 1; }
  }
  return found;
}

// The messages of the handshake, each of which ends with a zero.
const HANDSHAKE_MESSAGES = 3;
const HEADER_BYTES = 12;
const WITH_VALUES = [1, 2, 3];

// Calls `take` with each value in the bytes that a server sends.
function reader(take) {
  let bytes = Buffer.alloc(0), greeted = 0;
  return (more) => {
    bytes = Buffer.concat([bytes, more]);
    while (greeted < HANDSHAKE_MESSAGES) {
      const end = bytes.indexOf(0);
      if (end < 0) return;
      bytes = bytes.subarray(end + 1);
      greeted += 1;
    }
    while (bytes.length >= HEADER_BYTES && bytes.length >= HEADER_BYTES + bytes.readUInt32LE(8)) {
      const end = HEADER_BYTES + bytes.readUInt32LE(8);
      const response = bytes.subarray(HEADER_BYTES, end).toString();
      bytes = bytes.subarray(end);
      if (WITH_VALUES.includes(JSON.parse(response).t)) items(response).forEach(take);
    }
  };
}

// Runs cases against the server; resolves to the different values of its answers.
async function values(server, cases) {
  const found = new Set();
  const proxy = net.createServer((client) => {
    const upstream = net.connect(server.ports.driver, 'localhost');
    upstream.on('data', reader((value) => found.add(value)));
    client.pipe(upstream).pipe(client);
    client.on('error', () => upstream.destroy());
    upstream.on('error', () => client.destroy());
  });
  await new Promise((resolve) => { proxy.listen(0, 'localhost', resolve); });
  const flags = ['--host', 'localhost', '--port', String(proxy.address().port), '--clean', ...cases];
  const runner = spawn(path.join(cache, 'venv', 'bin', 'python'), [path.join(folder(), 'run.py'), ...flags], { stdio: 'ignore' });
  const status = await new Promise((resolve, reject) => { runner.on('exit', resolve).on('error', reject); });
  proxy.close();
  // What fails is for `cargo xtask conformance` to say.
  assert.ok(status === 0 || status === 1, `the runner of the cases left with ${status}`);
  return [...found];
}

module.exports = { folder, values };

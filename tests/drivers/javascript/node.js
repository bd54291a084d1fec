// A Rekindle node with its own folder, for tests.
'use strict';

const { spawn } = require('node:child_process');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const readline = require('node:readline');

function program() {
  if (process.env.REKINDLE_PROGRAM) return process.env.REKINDLE_PROGRAM;
  const cache = process.env.REKINDLE_CACHE || path.join(os.homedir(), '.cache', 'rekindle');
  const target = process.env.CARGO_TARGET_DIR || path.join(cache, 'target');
  return path.join(target, 'dist', 'rekindle');
}

class Node {
  constructor() {
    this.directory = fs.mkdtempSync(path.join(os.tmpdir(), 'rekindle-test-'));
    this.driverPort = 0;
  }

  // Resolves when the process reports that it is ready.
  start() {
    const flags = ['--directory', path.join(this.directory, 'data'), '--driver-port', String(this.driverPort),
      '--cluster-port', '0', '--no-http-admin'];
    this.process = spawn(program(), flags, { stdio: ['ignore', 'pipe', 'pipe'] });
    const said = [];
    return new Promise((resolve, reject) => {
      for (const stream of [this.process.stdout, this.process.stderr]) {
        readline.createInterface({ input: stream }).on('line', (line) => {
          said.push(line);
          const port = line.match(/client driver connections on port (\d+)/);
          if (port) this.driverPort = Number(port[1]);
          if (line.includes('Server ready')) resolve(this);
        });
      }
      this.process.on('error', reject);
      this.process.on('exit', (status) => reject(new Error(`the node left with ${status}:\n${said.join('\n')}`)));
    });
  }

  kill() {
    return new Promise((resolve) => {
      this.process.removeAllListeners('exit');
      this.process.on('exit', resolve);
      this.process.kill('SIGKILL');
    });
  }

  async remove() {
    if (this.process.exitCode === null && this.process.signalCode === null) await this.kill();
    fs.rmSync(this.directory, { recursive: true, force: true });
  }
}

module.exports = { Node };

// SHA-256, HMAC and PBKDF2. Browsers offer these only over HTTPS and on the same machine, and the console also works without.

const K = new Uint32Array(64);
const INITIAL = new Uint32Array(8);

// The first 32 bits of the fractions of the square and cube roots of the first primes.
(() => {
  let count = 0;
  for (let candidate = 2; count < 64; candidate++) {
    let isPrime = true;
    for (let factor = 2; factor * factor <= candidate; factor++) isPrime &&= candidate % factor !== 0;
    if (!isPrime) continue;
    if (count < 8) INITIAL[count] = (Math.sqrt(candidate) % 1) * 2 ** 32;
    K[count++] = (Math.cbrt(candidate) % 1) * 2 ** 32;
  }
})();

const schedule = new Uint32Array(64);

function compress(state: Uint32Array, block: Uint8Array, offset: number): void {
  for (let i = 0; i < 16; i++) {
    const at = offset + 4 * i;
    schedule[i] = (block[at]! << 24) | (block[at + 1]! << 16) | (block[at + 2]! << 8) | block[at + 3]!;
  }
  for (let i = 16; i < 64; i++) {
    const w15 = schedule[i - 15]!, w2 = schedule[i - 2]!;
    const s0 = ((w15 >>> 7) | (w15 << 25)) ^ ((w15 >>> 18) | (w15 << 14)) ^ (w15 >>> 3);
    const s1 = ((w2 >>> 17) | (w2 << 15)) ^ ((w2 >>> 19) | (w2 << 13)) ^ (w2 >>> 10);
    schedule[i] = (schedule[i - 16]! + s0 + schedule[i - 7]! + s1) | 0;
  }
  let [a, b, c, d, e, f, g, h] = state as unknown as [number, number, number, number, number, number, number, number];
  for (let i = 0; i < 64; i++) {
    const s1 = ((e >>> 6) | (e << 26)) ^ ((e >>> 11) | (e << 21)) ^ ((e >>> 25) | (e << 7));
    const t1 = (h + s1 + ((e & f) ^ (~e & g)) + K[i]! + schedule[i]!) | 0;
    const s0 = ((a >>> 2) | (a << 30)) ^ ((a >>> 13) | (a << 19)) ^ ((a >>> 22) | (a << 10));
    const t2 = (s0 + ((a & b) ^ (a & c) ^ (b & c))) | 0;
    h = g; g = f; f = e; e = (d + t1) | 0; d = c; c = b; b = a; a = (t1 + t2) | 0;
  }
  [a, b, c, d, e, f, g, h].forEach((word, i) => { state[i] = (state[i]! + word) | 0; });
}

// Continues from a state after `before` bytes, a multiple of 64.
function finish(start: Uint32Array, before: number, message: Uint8Array): Uint8Array {
  const state = start.slice();
  const padded = new Uint8Array(Math.ceil((message.length + 9) / 64) * 64);
  padded.set(message);
  padded[message.length] = 0x80;
  new DataView(padded.buffer).setBigUint64(padded.length - 8, BigInt(before + message.length) * 8n);
  for (let offset = 0; offset < padded.length; offset += 64) compress(state, padded, offset);
  const digest = new Uint8Array(32);
  const view = new DataView(digest.buffer);
  state.forEach((word, i) => view.setUint32(4 * i, word));
  return digest;
}

export function sha256(message: Uint8Array): Uint8Array {
  return finish(INITIAL, 0, message);
}

// A function that computes HMACs with one key.
export function hmac(key: Uint8Array): (message: Uint8Array) => Uint8Array {
  const short = key.length > 64 ? sha256(key) : key;
  const keyed = (mask: number) => {
    const block = new Uint8Array(64).fill(mask);
    short.forEach((byte, i) => { block[i]! ^= byte; });
    const state = INITIAL.slice();
    compress(state, block, 0);
    return state;
  };
  const inner = keyed(0x36), outer = keyed(0x5c);
  return (message) => finish(outer, 64, finish(inner, 64, message));
}

// The first block of PBKDF2, which is all that SCRAM needs.
export function pbkdf2(password: Uint8Array, salt: Uint8Array, rounds: number): Uint8Array {
  const mac = hmac(password);
  let block = mac(new Uint8Array([...salt, 0, 0, 0, 1]));
  const result = block.slice();
  for (let round = 1; round < rounds; round++) {
    block = mac(block);
    block.forEach((byte, i) => { result[i]! ^= byte; });
  }
  return result;
}

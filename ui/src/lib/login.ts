// Sessions: who is logged in, and the two posts of SCRAM-SHA-256 (RFC 7677) that prove a password without sending it.
import { hmac, pbkdf2, sha256 } from './sha256';

export interface SessionInfo {
  user: string | null;
  /** Whether `admin` has no password and needs none from here. */
  open: boolean;
  server: string | null;
  version: string;
  /** Identifies the version of the console's files. */
  files: string;
}

export class LoginError extends Error {}

const encode = (text: string) => new TextEncoder().encode(text);
const toBase64 = (bytes: Uint8Array) => btoa(String.fromCharCode(...bytes));
const fromBase64 = (text: string) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));

/** What the server says of this session; null while it starts. */
export async function sessionInfo(): Promise<SessionInfo | null> {
  const answer = await fetch('./api/session', { cache: 'no-store' });
  if (answer.status === 503) return null;
  if (answer.status !== 200 && answer.status !== 401) throw new LoginError((await answer.text()).trim());
  return (await answer.json()) as SessionInfo;
}

async function post(path: string, body = ''): Promise<string> {
  const answer = await fetch(path, { method: 'POST', body, headers: { 'content-type': 'text/plain' } });
  const text = await answer.text();
  if (!answer.ok) throw new LoginError(text.trim());
  return text;
}

export const openSession = () => post('./api/login/open');
export const logout = () => post('./api/logout');

// SASLprep for the usual cases: compatibility forms, other spaces, and characters without width.
function prepared(text: string): string {
  return text.replace(/[\u00a0\u1680\u2000-\u200b\u202f\u205f\u3000]/g, ' ').replace(/[\u00ad\u034f\u1806\u180b-\u180d\u200c\u200d\u2060\ufe00-\ufe0f\ufeff]/g, '').normalize('NFKC');
}

/** Begins a session of `user`. */
export async function login(user: string, password: string): Promise<void> {
  const nonce = toBase64(crypto.getRandomValues(new Uint8Array(18)));
  const name = prepared(user).replaceAll('=', '=3D').replaceAll(',', '=2C');
  const first = `n=${name},r=${nonce}`;
  const [exchange, serverFirst] = (await post('./api/login/begin', `n,,${first}`)).split('\n') as [string, string];
  const fields = new Map(serverFirst.split(',').map((part) => [part[0]!, part.slice(2)]));
  const serverNonce = fields.get('r') ?? '';
  if (!serverNonce.startsWith(nonce)) throw new LoginError('The server answered another login. Try again.');
  const salted = pbkdf2(encode(prepared(password)), fromBase64(fields.get('s') ?? ''), Number(fields.get('i')));
  const withoutProof = `c=biws,r=${serverNonce}`;
  const message = encode(`${first},${serverFirst},${withoutProof}`);
  const clientKey = hmac(salted)(encode('Client Key'));
  const proof = hmac(sha256(clientKey))(message).map((byte, i) => byte ^ clientKey[i]!);
  const serverFinal = await post('./api/login/finish', `${exchange}\n${withoutProof},p=${toBase64(proof)}`);
  const signature = toBase64(hmac(hmac(salted)(encode('Server Key')))(message));
  if (serverFinal.trim() !== `v=${signature}`) throw new LoginError('The server could not prove that it knows the password.');
}

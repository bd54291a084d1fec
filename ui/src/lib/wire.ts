// Carries queries to the server: frames of drivers over a WebSocket, or over plain requests where a proxy allows no WebSocket.
import { sessionInfo } from './login';
import type { Wire } from './terms';

/** A response, as the protocol has it. */
export interface Response {
  t: number;
  r: unknown[];
  n?: number[];
  e?: number;
  b?: (number | string)[];
  p?: unknown;
}

/** Numbers of the kinds of responses. */
export const KIND = { atom: 1, sequence: 2, partial: 3, waitComplete: 4, serverInfo: 5, clientError: 16, compileError: 17, runtimeError: 18 };
const PERMISSION = 6_000_000;
const NOTES_OF_FEEDS = [1, 2, 3, 4];

/** The server refused a query, or the connection is lost. */
export class QueryError extends Error {
  constructor(message: string, readonly kind: 'lost' | 'permission' | 'syntax' | 'runtime', readonly backtrace: (number | string)[] = []) {
    super(message);
  }
}

type Receive = (token: number, response: Response, bytes: number) => void;

interface Transport {
  send(token: number, body: string): void;
  close(): void;
}

export type State = 'connecting' | 'open' | 'lost' | 'ended';

/** The query that a START names; options of the query are JSON. */
const start = (term: Wire, options: Record<string, Wire>) => JSON.stringify([1, term, options]);

export class Connection {
  state: State = 'connecting';
  /** Whether queries travel over plain requests. */
  isSlow = false;
  onState: (state: State) => void = () => {};
  private transport: Transport | null = null;
  private waiting = new Map<number, { resolve: (response: Response) => void; reject: (error: QueryError) => void }>();
  private token = 0;
  private attempts = 0;
  private failedSockets = 0;
  private timer = 0;
  private stopped = false;
  /** Events of earlier attempts are of no interest. */
  private attempt = 0;
  /** Bytes received by all queries. */
  received = 0;

  open(): void {
    this.close();
    this.stopped = false;
    // Sockets that fail while other requests are answered: a proxy that allows none.
    if (this.failedSockets >= 2) this.openRequests();
    else this.openSocket();
  }

  close(): void {
    this.stopped = true;
    this.attempt += 1;
    clearTimeout(this.timer);
    this.transport?.close();
    this.transport = null;
    this.fail();
  }

  private openSocket(): void {
    const url = new URL('./api/reql', location.href);
    url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
    url.hash = '';
    const socket = new WebSocket(url);
    socket.binaryType = 'arraybuffer';
    const attempt = this.attempt;
    const isCurrent = () => attempt === this.attempt;
    let wasOpen = false;
    const parser = new FrameParser((token, response, bytes) => { if (isCurrent()) this.receive(token, response, bytes); });
    socket.onopen = () => {
      if (!isCurrent()) return socket.close();
      wasOpen = true;
      this.failedSockets = 0;
      this.isSlow = false;
      this.transport = { send: (token, body) => socket.send(frame(token, body)), close: () => socket.close() };
      this.opened();
    };
    socket.onmessage = (event) => parser.add(new Uint8Array(event.data as ArrayBuffer));
    socket.onclose = async (event) => {
      if (!isCurrent()) return;
      if (wasOpen) return this.lost(event.code === 4401);
      const info = await sessionInfo().catch(() => null);
      if (!isCurrent()) return;
      if (info?.user) this.failedSockets += 1;
      this.lost(info !== null && !info.user);
    };
  }

  private async openRequests(): Promise<void> {
    const attempt = this.attempt;
    const isCurrent = () => attempt === this.attempt;
    const lost = (ended: boolean) => {
      if (!isCurrent()) return;
      this.failedSockets = 0;
      this.lost(ended);
    };
    try {
      const transport = await openRequests((token, response, bytes) => { if (isCurrent()) this.receive(token, response, bytes); }, lost);
      if (!isCurrent()) return transport.close();
      this.transport = transport;
      this.isSlow = true;
      this.opened();
    } catch (error) {
      lost(error instanceof Response401);
    }
  }

  private opened(): void {
    this.attempts = 0;
    this.change('open');
  }

  private lost(ended: boolean): void {
    this.transport = null;
    this.attempt += 1;
    this.fail();
    if (this.stopped) return;
    this.change(ended ? 'ended' : 'lost');
    if (ended) return;
    this.attempts += 1;
    this.timer = setTimeout(() => this.open(), Math.min(250 * this.attempts, 1500)) as unknown as number;
  }

  private change(state: State): void {
    this.state = state;
    this.onState(state);
  }

  private fail(): void {
    const error = new QueryError('The connection to the server is lost.', 'lost');
    for (const { reject } of this.waiting.values()) reject(error);
    this.waiting.clear();
  }

  private receive(token: number, response: Response, bytes: number): void {
    this.received += bytes;
    const waiting = this.waiting.get(token);
    this.waiting.delete(token);
    waiting?.resolve(response);
  }

  /** Sends a query, or asks for more of one. */
  request(token: number, body: string): Promise<Response> {
    if (!this.transport) return Promise.reject(new QueryError('The connection to the server is lost.', 'lost'));
    return new Promise((resolve, reject) => {
      this.waiting.set(token, { resolve, reject });
      this.transport!.send(token, body);
    });
  }

  /** Ends a query that is not answered yet. */
  cancel(token: number): void {
    const waiting = this.waiting.get(token);
    if (!waiting) return;
    this.waiting.delete(token);
    this.transport?.send(token, '[3]');
    waiting.reject(new QueryError('Stopped.', 'runtime'));
  }

  /** Ends the wait for a response that is not wanted any more, as if it were the end of a stream. */
  abandon(token: number): void {
    const waiting = this.waiting.get(token);
    this.waiting.delete(token);
    waiting?.resolve({ t: KIND.sequence, r: [] });
  }

  /** Runs a query to its first response. `began` gets the number by which it can be cancelled. */
  async query(term: Wire, options: Record<string, Wire> = {}, began?: (token: number) => void): Promise<Cursor> {
    const token = ++this.token;
    began?.(token);
    const response = await this.request(token, start(term, options));
    return new Cursor(this, token, checked(response));
  }

  /** Runs a query and returns its value, or all elements of its stream. */
  async run<T = unknown>(term: { wire: Wire }, options: Record<string, Wire> = {}): Promise<T> {
    const cursor = await this.query(term.wire, options);
    if (!cursor.isStream) return cursor.value as T;
    const rows = cursor.take();
    while (!cursor.isDone) rows.push(...(await cursor.more()));
    return rows as T;
  }
}

/** The response, if it is no error. */
function checked(response: Response): Response {
  if (response.t < KIND.clientError) return response;
  const kind = response.e === PERMISSION ? 'permission' : response.t === KIND.runtimeError ? 'runtime' : 'syntax';
  throw new QueryError(String(response.r[0]), kind, response.b);
}

/** A value, or a stream of which more can be asked for. */
export class Cursor {
  readonly isStream: boolean;
  readonly isFeed: boolean;
  isDone: boolean;
  readonly profile: unknown;
  private rows: unknown[];

  constructor(private connection: Connection, private token: number, first: Response) {
    this.isStream = first.t !== KIND.atom;
    this.isFeed = (first.n ?? []).some((note) => NOTES_OF_FEEDS.includes(note));
    this.isDone = first.t !== KIND.partial;
    this.profile = first.p;
    this.rows = first.r;
  }

  get value(): unknown { return this.rows[0]; }

  /** The elements of the first response. */
  take(): unknown[] {
    const rows = this.rows;
    this.rows = [];
    return rows;
  }

  async more(): Promise<unknown[]> {
    if (this.isDone) return [];
    const response = checked(await this.connection.request(this.token, '[2]'));
    this.isDone = response.t !== KIND.partial;
    return response.r;
  }

  /** Ends the stream on the server. */
  stop(): void {
    if (this.isDone) return;
    this.isDone = true;
    this.connection.abandon(this.token);
    this.connection.request(this.token, '[3]').catch(() => {});
  }
}

function frame(token: number, body: string): Uint8Array<ArrayBuffer> {
  const bytes = new TextEncoder().encode(body);
  const whole = new Uint8Array(12 + bytes.length);
  const view = new DataView(whole.buffer);
  view.setUint32(0, token, true);
  view.setUint32(8, bytes.length, true);
  whole.set(bytes, 12);
  return whole;
}

/** The form of plain requests: the token, then the query. */
function withoutLength(whole: Uint8Array<ArrayBuffer>): Uint8Array<ArrayBuffer> {
  whole.copyWithin(8, 12);
  return whole.subarray(0, whole.length - 4);
}

/** Takes whole frames out of the bytes that arrive. */
export class FrameParser {
  private parts: Uint8Array[] = [];
  private size = 0;

  constructor(private receive: Receive) {}

  add(part: Uint8Array): void {
    this.parts.push(part);
    this.size += part.length;
    for (;;) {
      if (this.size < 12) return;
      const header = this.peek(12);
      const view = new DataView(header.buffer, header.byteOffset);
      const token = view.getUint32(0, true), length = view.getUint32(8, true);
      if (this.size < 12 + length) return;
      const whole = this.peek(12 + length);
      const text = new TextDecoder().decode(whole.subarray(12, 12 + length));
      this.drop(12 + length);
      this.receive(token, JSON.parse(text) as Response, 12 + length);
    }
  }

  // The first bytes in one piece.
  private peek(count: number): Uint8Array {
    if (this.parts[0]!.length < count) {
      const joined = new Uint8Array(this.size);
      let at = 0;
      for (const part of this.parts) { joined.set(part, at); at += part.length; }
      this.parts = [joined];
    }
    return this.parts[0]!;
  }

  private drop(count: number): void {
    this.parts[0] = this.parts[0]!.subarray(count);
    this.size -= count;
    if (this.parts[0].length === 0) this.parts.shift();
  }
}

class Response401 extends Error {}

async function openRequests(receive: Receive, lost: (ended: boolean) => void): Promise<Transport> {
  const post = async (path: string, body?: BodyInit) => {
    const answer = await fetch(`./ajax/reql/${path}`, { method: 'POST', body });
    if (answer.status === 401) throw new Response401();
    if (!answer.ok) throw new Error(await answer.text());
    return answer;
  };
  const id = await (await post('open-new-connection')).text();
  let isOpen = true;
  const parser = new FrameParser(receive);
  const fail = (error: unknown) => {
    if (isOpen) lost(error instanceof Response401);
    isOpen = false;
  };
  return {
    send: (token, body) => {
      post(`?conn_id=${id}`, withoutLength(frame(token, body))).then(async (answer) => parser.add(new Uint8Array(await answer.arrayBuffer()))).catch(fail);
    },
    close: () => {
      isOpen = false;
      post(`close-connection?conn_id=${id}`).catch(() => {});
    },
  };
}

// Runs the explorer's scripts, in a worker that reaches nothing: it builds terms with the official driver and passes them out.
// The page runs them and passes their results in.

declare function require(name: string): any;

class Bytes extends Uint8Array {
  static from64(text: string): Bytes { return new Bytes([...atob(text)].map((letter) => letter.charCodeAt(0))); }
  static override from(source: unknown, encoding?: unknown): any {
    if (typeof source === 'string') return encoding === 'base64' ? Bytes.from64(source) : new Bytes(new TextEncoder().encode(source));
    return new Bytes(source as ArrayLike<number>);
  }
  static isBuffer(value: unknown): boolean { return value instanceof Bytes; }
  override toString(encoding?: string): string {
    const letters = String.fromCharCode(...this);
    return encoding === 'base64' ? btoa(letters) : new TextDecoder().decode(this);
  }
}
(globalThis as any).Buffer = Bytes;

// After Buffer, which the driver takes from the global object.
const r = require('rethinkdb/ast');
const errors = require('rethinkdb/errors');

interface Waiting { term: any; resolve: (value: unknown) => void; reject: (error: Error) => void }
const waiting = new Map<number, Waiting>();
let queries = 0;
let statement = 0;
const TermBase = Object.getPrototypeOf(Object.getPrototypeOf(Object.getPrototypeOf(r.expr(1))));

const isTerm = (value: unknown): boolean => typeof value === 'function' && typeof (value as any).build === 'function' && typeof (value as any).args !== 'undefined' || (typeof value === 'function' && typeof (value as any).build === 'function');

/** What `run` returns: the query runs when it is awaited, or shown as the result of its statement. */
class Lazy {
  private promise: Promise<unknown> | null = null;
  constructor(readonly term: any, readonly options: Record<string, unknown>) {}
  begin(isShown = false): Promise<unknown> { return (this.promise ??= send(this.term, this.options, isShown)); }
  then(resolve?: any, reject?: any) { return this.begin().then(resolve, reject); }
  catch(reject: any) { return this.begin().catch(reject); }
  finally(done: any) { return this.begin().finally(done); }
}

function send(term: any, options: Record<string, unknown>, isShown: boolean): Promise<unknown> {
  const id = ++queries;
  const wire = term.build();
  const built = Object.fromEntries(Object.entries(options).filter(([, value]) => value !== undefined).map(([name, value]) => [snake(name), name === 'db' ? r.db(value).build() : r.expr(value).build()]));
  return new Promise((resolve, reject) => {
    waiting.set(id, { term, resolve, reject });
    postMessage({ type: 'query', id, term: wire, text: String(term), options: built, isShown, statement });
  });
}

const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);

// `run(connection, options, callback)`; the connection is that of the page.
function run(this: any, ...given: unknown[]): Lazy {
  const callback = given.find((one) => typeof one === 'function' && !isTerm(one)) as ((error: unknown, result?: unknown) => void) | undefined;
  const options = given.filter((one) => typeof one === 'object' && one !== null && Object.getPrototypeOf(one) === Object.prototype).pop() as Record<string, unknown> | undefined;
  const lazy = new Lazy(this, options ?? {});
  if (callback) lazy.begin().then((result) => callback(null, result), (error) => callback(error));
  return lazy;
}

for (let prototype = TermBase; prototype && prototype !== Function.prototype; prototype = Object.getPrototypeOf(prototype)) {
  if (Object.hasOwn(prototype, 'run')) prototype.run = run;
}
Object.getPrototypeOf(r.expr(1)).run = run;

function native(value: any): unknown {
  if (Array.isArray(value)) return value.map(native);
  if (typeof value !== 'object' || value === null) return value;
  if (value.$reql_type$ === 'TIME') return new Date(value.epoch_time * 1000);
  if (value.$reql_type$ === 'BINARY') return Bytes.from64(value.data);
  return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, native(inner)]));
}

// The value of a top-level expression: a query is run and shown, everything else is shown as it is.
async function show(number: number, value: unknown): Promise<void> {
  statement = number;
  if (value instanceof Lazy) await value.begin(true);
  else if (isTerm(value)) await send(value, {}, true);
  else {
    const plain = await value;
    if (plain !== undefined) postMessage({ type: 'value', statement: number, value: printable(plain) });
  }
}

function printable(value: unknown): unknown {
  if (typeof value === 'function') return '[function]';
  try {
    return JSON.parse(JSON.stringify(value) ?? 'null');
  } catch {
    return String(value);
  }
}

const AsyncFunction = Object.getPrototypeOf(async () => {}).constructor;

// The first statement that is no JavaScript by itself.
function unreadable(statements: string[]): number | undefined {
  const found = statements.findIndex((text) => { try { new AsyncFunction(text); return false; } catch { return true; } });
  return found < 0 ? undefined : found;
}

async function evaluate(code: string, statements: string[]): Promise<void> {
  statement = 0;
  try {
    // The sandbox exists for this: nothing but terms comes out of it.
    await new AsyncFunction('r', '__show', '__at', code)(r, show, (number: number) => { statement = number; });
    postMessage({ type: 'done' });
  } catch (error) {
    const isSyntax = error instanceof SyntaxError;
    postMessage({ type: 'error', message: error instanceof Error ? error.message : String(error), isSyntax, statement: isSyntax ? unreadable(statements) : statement });
  }
}

onmessage = ({ data }: MessageEvent) => {
  if (data.type === 'run') return evaluate(data.code, data.statements);
  const one = waiting.get(data.id);
  waiting.delete(data.id);
  if (!one) return;
  if (data.error === undefined) return one.resolve(native(data.value));
  // The driver prints the query and marks the part that failed.
  const kind = data.isCompile ? errors.ReqlServerCompileError : errors.ReqlRuntimeError;
  let failure: Error;
  try { failure = new kind(data.error, one.term, data.backtrace); } catch { failure = new Error(data.error); }
  one.reject(failure);
};
postMessage({ type: 'ready' });

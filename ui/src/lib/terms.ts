// Builds the queries of the pages. Numbers of terms: docs/reql-spec.md section 7. The explorer uses the official driver instead.

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
/** A term of the wire: a value, or number, arguments and options. */
export type Wire = null | boolean | number | string | [number, Wire[], Record<string, Wire>?] | { [key: string]: Wire };
type Arg = Term | Json | Arg[] | { [key: string]: Arg };
type Options = Record<string, Arg>;

let variables = 0;

function wire(arg: Arg): Wire {
  if (arg instanceof Term) return arg.wire;
  if (Array.isArray(arg)) return [2, arg.map(wire)];
  if (typeof arg === 'object' && arg !== null) return Object.fromEntries(Object.entries(arg).map(([key, value]) => [key, wire(value as Arg)]));
  return arg;
}

export class Term {
  constructor(readonly wire: Wire) {}

  static call(number: number, args: Arg[], options?: Options): Term {
    const wired = args.map(wire);
    const given = options && Object.entries(options).filter(([, value]) => value !== undefined);
    return new Term(given?.length ? [number, wired, Object.fromEntries(given.map(([key, value]) => [key, wire(value)]))] : [number, wired]);
  }

  private next(number: number, args: Arg[] = [], options?: Options): Term {
    return Term.call(number, [this, ...args], options);
  }

  table(name: string, options?: Options) { return this.next(15, [name], options); }
  get(key: Arg) { return this.next(16, [key]); }
  getAll(key: Arg, index?: string) { return this.next(78, [key], index ? { index } : undefined); }
  getAllOf(keys: Arg[]) { return this.next(78, keys); }
  between(from: Arg, to: Arg, options?: Options) { return this.next(182, [from, to], options); }
  orderBy(options: Options, ...keys: Arg[]) { return this.next(41, keys, options); }
  slice(from: number) { return this.next(30, [from]); }
  limit(count: number) { return this.next(71, [count]); }
  filter(test: Arg | ((row: Term) => Term), options?: Options) { return this.next(39, [typeof test === 'function' ? func(test) : test], options); }
  forEach(f: (row: Term) => Term) { return this.next(68, [func(f)]); }
  map(f: (row: Term) => Term | Arg) { return this.next(38, [func(f)]); }
  row(field: Arg) { return this.next(170, [field]); }
  pluck(...fields: Arg[]) { return this.next(33, fields); }
  without(...fields: Arg[]) { return this.next(34, fields); }
  merge(other: Arg) { return this.next(35, [other]); }
  count() { return this.next(43); }
  coerceTo(type: string) { return this.next(51, [type]); }
  default(value: Arg) { return this.next(92, [value]); }
  eq(value: Arg) { return this.next(17, [value]); }
  ne(value: Arg) { return this.next(18, [value]); }
  lt(value: Arg) { return this.next(19, [value]); }
  le(value: Arg) { return this.next(20, [value]); }
  gt(value: Arg) { return this.next(21, [value]); }
  ge(value: Arg) { return this.next(22, [value]); }
  hasFields(...fields: Arg[]) { return this.next(32, fields); }
  contains(value: Arg) { return this.next(93, [value]); }
  typeOf() { return this.next(52); }
  or(value: Arg) { return this.next(66, [value]); }
  and(value: Arg) { return this.next(67, [value]); }
  match(pattern: Arg) { return this.next(97, [pattern]); }
  insert(rows: Arg, options?: Options) { return this.next(56, [rows], options); }
  update(change: Arg | ((row: Term) => Term | Arg), options?: Options) { return this.next(53, [typeof change === 'function' ? func(change) : change], options); }
  replace(change: (row: Term) => Term | Arg, options?: Options) { return this.next(55, [func(change)], options); }
  delete(options?: Options) { return this.next(54, [], options); }
  tableList() { return this.next(62); }
  tableCreate(name: string, options?: Options) { return this.next(60, [name], options); }
  tableDrop(name: string) { return this.next(61, [name]); }
  indexCreate(name: string, definition?: Arg | ((row: Term) => Term | Arg), options?: Options) {
    const given = definition === undefined ? [] : [typeof definition === 'function' ? func(definition) : definition];
    return this.next(75, [name, ...given], options);
  }
  indexDrop(name: string) { return this.next(76, [name]); }
  indexRename(from: string, to: string) { return this.next(156, [from, to]); }
  indexStatus() { return this.next(139); }
  reconfigure(options: Options) { return this.next(176, [], options); }
  rebalance() { return this.next(179); }
  config() { return this.next(174); }
  status() { return this.next(175); }
  grant(user: string, permissions: Arg) { return this.next(188, [user, permissions]); }
  info() { return this.next(79); }
  setWriteHook(hook: Arg) { return this.next(189, [hook]); }
  changes(options?: Options) { return this.next(152, [], options); }
  keys() { return this.next(94); }
  do(f: (value: Term) => Term | Arg) { return Term.call(64, [func(f), this]); }
}

/** A function of one argument. */
export function func(f: (row: Term) => Term | Arg): Term {
  const id = ++variables;
  return Term.call(69, [[id], f(new Term([10, [id]])) as Arg]);
}

export const db = (name: string | Term) => Term.call(14, [name]);
/** A table as the console's pages name it: the option changes nothing there, and tells their queries from others in the list of jobs. */
export const table = (database: string, name: string) => db(database).table(name, { identifier_format: 'name' });
export const system = (name: string, options?: Options) => db('rethinkdb').table(name, options);
export const dbCreate = (name: string) => Term.call(57, [name]);
export const dbList = () => Term.call(59, []);
export const dbDrop = (name: string) => Term.call(58, [name]);
export const expr = (value: Arg) => new Term(wire(value));
export const object = (fields: Record<string, Arg>) => new Term(wire(fields));
export const branch = (test: Arg, yes: Arg, no: Arg) => Term.call(65, [test, yes, no]);
export const error = (text: string) => Term.call(12, [text]);
export const literal = (...value: Arg[]) => Term.call(137, value);
export const and = (...tests: Arg[]) => Term.call(67, tests);
export const desc = (field: string) => Term.call(74, [field]);
export const minval = Term.call(180, []);
export const maxval = Term.call(181, []);
export const binary = (base64: string) => expr({ $reql_type$: 'BINARY', data: base64 });
export const grantGlobal = (user: string, permissions: Arg) => Term.call(188, [user, permissions]);
/** A value as it is, with the names of types in objects read as RethinkDB's types. */
export const datum = (value: Json) => new Term(wire(value as Arg));

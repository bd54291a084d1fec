// Fields of rows by their paths: `['address', 'city']`. A name may have dots, so that a path is no text.
import { pseudo } from './format';
import type { Json } from './terms';

export type Path = readonly string[];
type Tree = { [key: string]: Json };

const DEPTH_MAX = 4;

/** Whether a value is an object with fields, and no value of a type of RethinkDB's. */
export function hasFields(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && pseudo(value) === undefined;
}

/** The value under a path; undefined where there is none. */
export function at(row: unknown, path: Path): Json | undefined {
  let value = row;
  for (const field of path) {
    if (!hasFields(value) || !Object.hasOwn(value, field)) return undefined;
    value = value[field];
  }
  return value as Json | undefined;
}

/** The row with another value under a path; without it if that is undefined. Everything else is shared. */
export function withValue<Row extends Tree>(row: Row, path: Path, value: Json | undefined): Row {
  const [field, ...rest] = path;
  if (field === undefined) return row;
  const fields = new Map<string, Json>(Object.entries(row));
  const before = fields.get(field);
  if (rest.length) fields.set(field, withValue(hasFields(before) ? before : {}, rest, value));
  else if (value === undefined) fields.delete(field);
  else fields.set(field, value);
  return Object.fromEntries(fields) as Row;
}

/** Collects the fields of rows, `first` before the others, at most `most`. With `isNested`, those of objects in place of the objects. */
export class Fields {
  private found = new Map<string, Path>();
  private seen = new WeakSet<object>();
  private sorted: Path[] | null = null;

  constructor(first: string | undefined, private isNested: boolean, private most: number) {
    if (first !== undefined) this.found.set(JSON.stringify([first]), [first]);
  }

  /** The fields of these rows and of all before; rows that were there before are not looked at again. */
  of(rows: readonly unknown[]): Path[] {
    const before = this.found.size;
    for (const row of rows) {
      if (!hasFields(row) || this.seen.has(row)) continue;
      this.seen.add(row);
      this.add(row, []);
    }
    if (!this.sorted || this.found.size !== before) this.sorted = this.order();
    return this.sorted;
  }

  private add(value: Tree, before: Path): void {
    for (const field of Object.keys(value)) {
      const path = [...before, field], inner = value[field];
      if (this.isNested && path.length < DEPTH_MAX && hasFields(inner) && Object.keys(inner).length) this.add(inner, path);
      else if (this.found.size < this.most) this.found.set(JSON.stringify(path), path);
    }
  }

  // Fields of one object stand together, in the order in which the objects were found.
  private order(): Path[] {
    const all = [...this.found.values()];
    if (!this.isNested) return all;
    const places = new Map([...new Set(all.map((path) => path[0]!))].map((name, i) => [name, i]));
    return all.sort((a, b) => places.get(a[0]!)! - places.get(b[0]!)!);
  }
}

/** The fields of rows, at most `most`. */
export const columnsOf = (rows: readonly unknown[], most: number): Path[] => new Fields(undefined, false, most).of(rows);

/** How a path is shown. */
export const shownPath = (path: Path) => path.join('.');

/** Where a field is in the text of a row, as JSON with two spaces a level: its first line. Null if it is not there. */
export function fieldIn(text: string, path: Path): { from: number; to: number } | null {
  let at = 0, indent = '';
  for (const name of path) {
    indent += '  ';
    at = text.indexOf(`\n${indent}${JSON.stringify(name)}: `, at);
    if (at < 0) return null;
  }
  const from = at + 1 + indent.length, end = text.indexOf('\n', from);
  return { from, to: end < 0 ? text.length : end };
}

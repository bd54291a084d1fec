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

/** The fields of rows, `first` before the others, at most `most`. With `isNested`, those of objects in place of the objects. */
export function columnsOf(rows: readonly unknown[], { first, most, isNested = false }: { first?: string; most: number; isNested?: boolean }): Path[] {
  const found = new Map<string, Path>();
  const add = (value: unknown, before: Path) => {
    if (!hasFields(value)) return;
    for (const field of Object.keys(value)) {
      const path = [...before, field];
      if (isNested && path.length < DEPTH_MAX && hasFields(value[field]) && Object.keys(value[field]).length) add(value[field], path);
      else if (found.size < most) found.set(JSON.stringify(path), path);
    }
  };
  if (first !== undefined) found.set(JSON.stringify([first]), [first]);
  rows.forEach((row) => add(row, []));
  if (!isNested) return [...found.values()];
  // Fields of one object stand together, in the order in which the objects were found.
  const order = [...new Set([...found.values()].map((path) => path[0]!))];
  return [...found.values()].sort((a, b) => order.indexOf(a[0]!) - order.indexOf(b[0]!));
}

/** How a path is shown. */
export const shownPath = (path: Path) => path.join('.');

// Changes of a row: only changed fields are sent, and only if their stored values still are the displayed ones.
import { app } from './app.svelte';
import { hasFields, type Path } from './paths';
import { succeeded, type Written } from './questions';
import { branch, datum, error, expr, literal, table, Term, type Json } from './terms';

export type Row = Record<string, Json>;
type Tree = { [key: string]: Json };
/** The changed fields: `true`, or those of an object in turn. */
export interface Selection { [field: string]: true | Selection }

const CONFLICT = 'rekindle: the row has changed';
const REMOVED_AT_ONCE = 200;

/** The fields that this change is about are not as displayed. */
export class Conflict extends Error {
  constructor(readonly theirs: Row | null, readonly fields: Path[]) {
    super(theirs ? 'The row has changed meanwhile.' : 'The row was deleted meanwhile.');
  }
}

/** Whether two values are equal. -0 equals 0, which JSON.stringify makes of it. */
export function same(a: Json | undefined, b: Json | undefined): boolean {
  if (a === b) return true;
  if (typeof a !== 'object' || typeof b !== 'object' || a === null || b === null || Array.isArray(a) !== Array.isArray(b)) return false;
  const keys = Object.keys(a), others = Object.keys(b);
  return keys.length === others.length && keys.every((key) => Object.hasOwn(b, key) && same((a as Tree)[key], (b as Tree)[key]));
}

/** The fields in which `mine` differs from `base`, and the change that leads there; null without a difference. */
export function difference(base: Row, mine: Row): { fields: Selection; change: Record<string, Term | object> } | null {
  // Without a prototype, so that `__proto__` is a field as any other.
  const fields: Selection = Object.create(null), change: Record<string, Term | object> = Object.create(null);
  for (const field of new Set([...Object.keys(base), ...Object.keys(mine)])) {
    const before = Object.hasOwn(base, field) ? base[field] : undefined;
    const after = Object.hasOwn(mine, field) ? mine[field] : undefined;
    if (same(before, after)) continue;
    if (hasFields(before) && hasFields(after)) {
      const inner = difference(before, after);
      if (inner) { fields[field] = inner.fields; change[field] = inner.change; }
      continue;
    }
    fields[field] = true;
    change[field] = after === undefined ? literal() : literal(datum(after));
  }
  return Object.keys(fields).length ? { fields, change } : null;
}

/** The fields of a selection as paths. */
export function paths(fields: Selection, before: Path = []): Path[] {
  return Object.entries(fields).flatMap(([field, inner]) => (inner === true ? [[...before, field]] : paths(inner, [...before, field])));
}

/** Stores the difference. Fails with [`Conflict`] if a changed field is not as displayed. Returns the new row. */
export async function save(database: string, name: string, primaryKey: string, base: Row, mine: Row): Promise<Row> {
  const key = base[primaryKey]!;
  if (!same(key, mine[primaryKey])) throw new Error(`The primary key ${primaryKey} of a row cannot be changed. Copy the row instead.`);
  const found = difference(base, mine);
  if (!found) return base;
  const rows = table(database, name);
  const selection = found.fields as unknown as Tree;
  const written = await app.run<Written>(rows.get(datum(key)).update(
    (row) => branch(row.pluck(selection).eq(datum(base).pluck(selection)), found.change as unknown as Term, error(CONFLICT)),
    { return_changes: 'always' },
  ));
  if (written.skipped) throw new Conflict(null, paths(found.fields));
  if (written.errors && written.first_error?.includes(CONFLICT)) {
    const theirs = await app.run<Row | null>(rows.get(datum(key)));
    throw new Conflict(theirs, paths(found.fields));
  }
  succeeded(written);
  return (written.changes?.[0]?.new_val as Row | undefined) ?? mine;
}

/** Deletes those of the rows that still are as displayed. Returns the others, as they are stored. */
export async function remove(database: string, name: string, primaryKey: string, bases: Row[]): Promise<Row[]> {
  const rows = table(database, name);
  const changed: Row[] = [];
  for (let at = 0; at < bases.length; at += REMOVED_AT_ONCE) {
    const part = bases.slice(at, at + REMOVED_AT_ONCE).map((base) => datum(base));
    const written = await app.run<Written>(expr(part).forEach((base) => rows.get(base.row(primaryKey)).replace((row) => branch(row.eq(base), null, error(CONFLICT)))));
    if (!written.errors) continue;
    if (!written.first_error?.includes(CONFLICT)) succeeded(written);
    // A row that was deleted meanwhile is no conflict.
    changed.push(...(await app.run<Row[]>(rows.getAllOf(part.map((base) => base.row(primaryKey))))));
  }
  return changed;
}

/** Reads the text of an editor as a row. */
export function parseRow(text: string): Row {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (failure) {
    throw new Error(`This is no JSON: ${failure instanceof Error ? failure.message : String(failure)}`);
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw new Error('A row is an object: { … }');
  return value as Row;
}

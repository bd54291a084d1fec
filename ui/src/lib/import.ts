// Files as rows: JSON, JSON lines and CSV. Everything that is wrong is found, with its line, before a row is stored.
import { records, value, type CsvRecord, type ColumnType } from './csv';
import type { Row } from './edit';
import { count, kind, plural } from './format';
import type { Json } from './terms';

export interface Column { name: string; type: ColumnType }
/** A file as it was read. `places` tell where in the file rows are. */
export type Source = { kind: 'csv'; columns: Column[]; records: CsvRecord[] } | { kind: 'json'; rows: { row: unknown; line: number }[] };
/** The rows of a file. With an error nothing is stored. `kinds`: the types that fields have. */
export interface Reading { rows: { row: Row; line: number }[]; errors: string[]; notes: string[]; kinds: Map<string, Set<string>> }

/** Errors that are told one by one. */
const TOLD_MAX = 10;

/** Collects what is wrong, and counts what is not told. */
class Told {
  list: string[] = [];
  private more = 0;
  add(text: string): void { if (this.list.length < TOLD_MAX) this.list.push(text); else this.more += 1; }
  get all(): string[] { return this.more ? [...this.list, `And ${count(this.more)} more.`] : this.list; }
}

/** Reads a file. Fails if it cannot be told what its rows are. */
export function readFile(text: string, name: string): Source {
  const plain = text.replace(/^\ufeff/, '');
  if (/\.(csv|tsv)$/i.test(name)) return readCsv(plain);
  return { kind: 'json', rows: /^\s*\[/.test(plain) ? elements(plain) : lines(plain) };
}

function readCsv(text: string): Source {
  const [head, ...rest] = records(text);
  if (!head) throw new Error('The file is empty. Its first line has the names of the columns.');
  // A file in which everything is in quotes says nothing with them.
  const all = [head, ...rest].flatMap(({ cells }) => cells);
  if (all.every((cell) => cell.isQuoted || cell.text === '')) all.forEach((cell) => { cell.isQuoted = false; });
  return { kind: 'csv', records: rest, columns: head.cells.map((cell) => ({ name: cell.isQuoted ? String(value(cell, 'text')) : cell.text.trim(), type: 'auto' })) };
}

// The elements of an array with their lines.
function elements(text: string): { row: unknown; line: number }[] {
  const found: { row: unknown; line: number }[] = [];
  let depth = 0, isText = false, line = 1, start = -1, startLine = 1;
  const end = (at: number) => {
    if (start >= 0) found.push({ row: parse(text.slice(start, at), startLine), line: startLine });
    start = -1;
  };
  for (let at = text.indexOf('['); at < text.length; at++) {
    const letter = text[at]!;
    if (letter === '\n') line += 1;
    if (isText) { if (letter === '\\') at += 1; else isText = letter !== '"'; continue; }
    if (depth === 1 && start < 0 && !/[\s,\]]/.test(letter)) { start = at; startLine = line; }
    if (letter === '"') isText = true;
    else if (letter === '[' || letter === '{') depth += 1;
    else if (letter === ',' && depth === 1) end(at);
    else if (letter === ']' || letter === '}') {
      depth -= 1;
      if (depth === 0) {
        end(at);
        if (text.slice(at + 1).trim() !== '') throw new Error(`Line ${line}: there is text after the end of the array.`);
        return found;
      }
    }
  }
  end(text.length);
  throw new Error(`Line ${line}: the file ends inside of the array that begins it.`);
}

function lines(text: string): { row: unknown; line: number }[] {
  return text.split('\n').flatMap((line, i) => (line.trim() === '' ? [] : [{ row: parse(line, i + 1), line: i + 1 }]));
}

// Fails with the line, and the field before the place that is wrong.
function parse(text: string, line: number): unknown {
  try {
    return JSON.parse(text);
  } catch (failure) {
    const said = failure instanceof Error ? failure.message : String(failure);
    const position = /position (\d+)/.exec(said)?.[1];
    const place = /line (\d+) column (\d+)/.exec(said);
    const at = position !== undefined ? Number(position) : place ? offset(text, Number(place[1]), Number(place[2])) : text.length;
    const before = text.slice(0, at);
    const field = [...before.matchAll(/("(?:[^"\\]|\\.)*")\s*:/g)].at(-1)?.[1];
    throw new Error(`Line ${line + before.split('\n').length - 1}${field ? `, field ${field.slice(0, 60)}` : ''}: this is no JSON (${said.replace(/ in JSON at position.*| at line \d+ column.*| \(line \d+ column \d+\)/, '')}).`);
  }
}
const offset = (text: string, line: number, column: number) => text.split('\n').slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0) + column - 1;

/** The rows of a file as its columns are to be read now. */
export function rowsOf(source: Source, key: string): Reading {
  const errors = new Told(), notes = new Told();
  const rows = source.kind === 'csv' ? csvRows(source, errors) : jsonRows(source.rows, errors);
  checkKeys(rows, key, errors, notes);
  const kinds = new Map<string, Set<string>>();
  for (const { row } of rows) for (const [field, one] of Object.entries(row)) kinds.set(field, (kinds.get(field) ?? new Set()).add(kind(one)));
  return { rows, errors: errors.all, notes: notes.all, kinds };
}

function jsonRows(found: { row: unknown; line: number }[], errors: Told): { row: Row; line: number }[] {
  return found.flatMap(({ row, line }) => {
    if (kind(row) === 'object') return [{ row: row as Row, line }];
    errors.add(`Line ${line}: this is no row, which is an object { … }, but of the type ${kind(row)}.`);
    return [];
  });
}

function csvRows({ columns, records }: { columns: Column[]; records: CsvRecord[] }, errors: Told): { row: Row; line: number }[] {
  checkNames(columns, errors);
  return records.flatMap(({ cells, line }) => {
    const fields: [string, Json][] = [];
    if (cells.length !== columns.length) {
      errors.add(`Line ${line} has ${plural(cells.length, 'column')}; the first line has ${columns.length}.`);
      return [];
    }
    columns.forEach(({ name, type }, i) => {
      try {
        const read = value(cells[i]!, type);
        if (read !== undefined) fields.push([name, read]);
      } catch (failure) {
        errors.add(`Line ${line}, column ${name}: ${(failure as Error).message}.`);
      }
    });
    return [{ row: Object.fromEntries(fields), line }];
  });
}

function checkNames(columns: Column[], errors: Told): void {
  const first = new Map<string, number>();
  columns.forEach(({ name, type }, i) => {
    if (type === 'skip') return;
    const before = first.get(name);
    if (name === '') errors.add(`Line 1: column ${i + 1} has no name.`);
    else if (name === '$reql_type$') errors.add(`Line 1: column ${i + 1} cannot be named $reql_type$.`);
    else if (before !== undefined) errors.add(`Line 1: the columns ${before + 1} and ${i + 1} have the same name ${name}.`);
    else first.set(name, i);
  });
}

// Keys that are missing, null, or there twice.
function checkKeys(rows: { row: Row; line: number }[], key: string, errors: Told, notes: Told): void {
  const without: number[] = [];
  const seen = new Map<string, number>();
  for (const { row, line } of rows) {
    const own = Object.hasOwn(row, key) ? row[key] : undefined;
    if (own === undefined) { without.push(line); continue; }
    if (own === null || kind(own) === 'object') { errors.add(`Line ${line}, field ${key}: the key of a row cannot be ${own === null ? 'null' : 'an object'}.`); continue; }
    const text = JSON.stringify(own), before = seen.get(text);
    if (before !== undefined) notes.add(`Lines ${before} and ${line} have the same ${key}, ${text.slice(0, 60)}.`);
    else seen.set(text, line);
  }
  if (without.length === 0) return;
  notes.add(without.length === rows.length ? `No row has a ${key}: the server makes up the keys.`
    : `${without.length === 1 ? `Line ${without[0]} has` : `Lines ${without.slice(0, 5).join(', ')}${without.length > 5 ? ` and ${count(without.length - 5)} more` : ''} have`} no ${key}: the server makes up the keys.`);
}

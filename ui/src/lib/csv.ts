// CSV that keeps the types of values: what another reading would take for something else than text is text in quotes.
import { parseTime, timeText } from './cell';
import type { Json } from './terms';

export interface Cell { text: string; isQuoted: boolean }
/** The cells of a record, and the line where it begins. */
export interface CsvRecord { cells: Cell[]; line: number }
/** How the cells of a column are read. `auto`: each as it is written. */
export type ColumnType = 'auto' | 'text' | 'number' | 'boolean' | 'time' | 'json' | 'skip';

const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;
/** Digits that each number of a computer has. */
const DIGITS_EXACT = 15;

const quote = (text: string) => `"${text.replaceAll('"', '""')}"`;
const parse = (text: string): Json | undefined => { try { return JSON.parse(text) as Json; } catch { return undefined; } };

/** The cell of a value, which [`value`] reads as the same one. A missing field is an empty cell, an empty text one in quotes. */
export function written(value: unknown): string {
  if (value === undefined) return '';
  if (typeof value === 'string') return writtenText(value);
  if (Object.is(value, -0)) return '-0';
  const text = timeText(value) ?? JSON.stringify(value);
  return /[",\r\n]/.test(text) ? quote(text) : text;
}

function writtenText(text: string): string {
  if (/^[[{"]/.test(text) && parse(text) !== undefined) return quote(JSON.stringify(text));
  return /[",;\t\r\n]|^\s|\s$/.test(text) || unquoted(text) !== text ? quote(text) : text;
}

function unquoted(text: string): Json | undefined {
  if (text === '') return undefined;
  if (text === 'null' || text === 'true' || text === 'false') return JSON.parse(text) as Json;
  // A number with more digits than numbers have is text: an account, say.
  if (NUMBER.test(text)) return String(Number(text)) === text || text.replace(/\D/g, '').length <= DIGITS_EXACT ? (JSON.parse(text) as Json) : text;
  return parseTime(text) ?? structured(text) ?? text;
}
const structured = (text: string) => (/^[[{]/.test(text) ? parse(text) : undefined);

// In quotes: text, or JSON of an object, an array or a text.
function inQuotes(text: string): Json {
  if (text.startsWith('"')) { const inner = parse(text); if (typeof inner === 'string') return inner; }
  return structured(text) ?? text;
}

/** The value of a cell; undefined for an empty one. Fails, with a reason, if it has not the type. */
export function value({ text, isQuoted }: Cell, type: ColumnType): Json | undefined {
  if (type === 'skip' || (text === '' && !isQuoted)) return undefined;
  if (type === 'auto') return isQuoted ? inQuotes(text) : unquoted(text);
  if (type === 'text') { const inner = isQuoted ? inQuotes(text) : text; return typeof inner === 'string' ? inner : text; }
  if (text === '') return undefined;
  if (!isQuoted && text === 'null') return null;
  const read = READERS[type](text.trim());
  if (read === undefined) throw new Error(`${JSON.stringify(text.slice(0, 60))} is no ${NAMES[type]}`);
  return read;
}

const NAMES = { number: 'number', boolean: 'boolean: true or false', time: 'time such as 2026-01-31T12:00:00Z', json: 'JSON' };
const READERS: Record<keyof typeof NAMES, (text: string) => Json | undefined> = {
  number: (text) => (/^[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(text) && Number.isFinite(Number(text)) ? Number(text) : undefined),
  boolean: (text) => (/^(true|1|yes)$/i.test(text) ? true : /^(false|0|no)$/i.test(text) ? false : undefined),
  // Without a zone it is UTC; without a time of day it is midnight.
  time: (text) => {
    const [, day, clock = '00:00', zone = 'Z'] = /^(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d+)?)?))?\s*(Z|[+-]\d\d:\d\d)?$/.exec(text) ?? [];
    return day === undefined ? undefined : parseTime(`${day}T${clock}${zone}`) ?? undefined;
  },
  json: parse,
};

/** The character between the cells: a comma, or what the first line has more often. */
function separator(text: string): string {
  const head = (text.split('\n', 1)[0] ?? '').replace(/"[^"]*"/g, '');
  const count = (letter: string) => head.split(letter).length;
  return [',', ';', '\t'].reduce((best, letter) => (count(letter) > count(best) ? letter : best));
}

/** The records of a file. Empty lines are none. Fails if a cell in quotes does not end. */
export function records(text: string): CsvRecord[] {
  const found: CsvRecord[] = [];
  const comma = separator(text);
  let cells: Cell[] = [], cell: Cell = { text: '', isQuoted: false }, inside = false, line = 1, start = 1;
  const endCell = () => { cells.push(cell); cell = { text: '', isQuoted: false }; };
  const endRecord = () => {
    endCell();
    if (cells.length > 1 || cells[0]!.text !== '' || cells[0]!.isQuoted) found.push({ cells, line: start });
    cells = [];
  };
  for (let at = 0; at < text.length;) {
    // Up to the next letter that means something.
    const stop = inside ? indexFrom(text, '"', at) : nextSpecial(text, comma, at);
    if (stop > at) {
      const part = text.slice(at, stop);
      if (inside) line += part.split('\n').length - 1;
      cell.text += part;
      at = stop;
      continue;
    }
    const letter = text[at]!;
    at += 1;
    if (inside) { if (text[at] === '"') { cell.text += '"'; at += 1; } else inside = false; }
    else if (letter === '"') { if (cell.text === '' && !cell.isQuoted) { inside = true; cell.isQuoted = true; } else cell.text += letter; }
    else if (letter === comma) endCell();
    else if (letter === '\n') { endRecord(); line += 1; start = line; }
  }
  if (inside) throw new Error(`Line ${start}: a cell in quotes does not end.`);
  if (cell.text !== '' || cell.isQuoted || cells.length) endRecord();
  return found;
}

const indexFrom = (text: string, letter: string, at: number) => { const found = text.indexOf(letter, at); return found < 0 ? text.length : found; };
function nextSpecial(text: string, comma: string, at: number): number {
  for (let i = at; i < text.length; i++) { const letter = text[i]; if (letter === comma || letter === '"' || letter === '\n' || letter === '\r') return i; }
  return text.length;
}

/** Adds empty cells to the end of each record. */
export function padded(text: string, cells: number): string {
  return text.replace(/"[^"]*"|\r\n/g, (found) => (found === '\r\n' ? `${','.repeat(cells)}\r\n` : found));
}

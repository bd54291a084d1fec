// What is typed into a cell or a search field, as a value.
import { isTime, kind, time } from './format';
import { same } from './edit';
import type { Json } from './terms';

const TIME = /^(\d{4}-\d\d-\d\d)T\d\d:\d\d(:\d\d(\.\d{1,3})?)?(Z|[+-]\d\d:\d\d)$/;

/** Reads JSON, or else text. */
export function parseValue(text: string): Json {
  try { return JSON.parse(text) as Json; } catch { return text; }
}

/** What is wrong with a text that begins as JSON and is none; empty for other texts. */
export function unfinished(text: string): string {
  if (!/^\s*["[{]/.test(text)) return '';
  try { JSON.parse(text); return ''; } catch { return `This begins as JSON and does not end as it. As text it is written ${JSON.stringify(text)}.`; }
}

/** The values that a text may mean: `42` is a number, or the text of a key. In quotes it is text alone. */
export function readings(text: string): Json[] {
  const value = parseValue(text);
  return typeof value === 'string' ? [value] : [value, text];
}

/** The text of a cell's editor, which [`parseCell`] reads as the same value. */
export function cellText(value: Json | undefined): string {
  if (value === undefined) return '';
  // An editor of one line loses the ends of lines.
  if (typeof value === 'string') return /[\r\n]/.test(value) || parseText(value) !== value ? JSON.stringify(value) : value;
  return timeText(value) ?? JSON.stringify(value);
}

/** The text that [`parseTime`] reads as this time; null for other values, and for times that it does not read. */
export function timeText(value: unknown): string | null {
  if (!isTime(value)) return null;
  const text = time(value), read = parseTime(text);
  return read && same(read, value as unknown as Json) ? text : null;
}

/** Reads what was typed into the cell of a value. It keeps the value's type, except where JSON of another one is typed: fails for other texts. */
export function parseCell(text: string, before: Json | undefined): Json {
  if (typeof before === 'string') return parseText(text);
  if (before === undefined) return parseValue(text);
  const at = isTime(before) ? parseTime(text) : null;
  if (at) return at;
  const value = parseValue(text);
  // Text that is no JSON, such as an empty one.
  if (value === text && before !== null) throw new Error(`This field is of the type ${kind(before)}. ${isTime(before) ? 'Type a time such as 2026-01-31T12:00:00Z, or' : 'Type JSON, and'} text in quotes: ${JSON.stringify(text)}.`);
  if (text === '') throw new Error('Type null, or "" for an empty text.');
  return value;
}

// Text is as it is typed, except in quotes.
function parseText(text: string): string {
  const value = text.startsWith('"') ? parseValue(text) : text;
  return typeof value === 'string' ? value : text;
}

/** Reads a time such as 2026-01-31T12:00:00+01:00; null for other texts. */
export function parseTime(text: string): Json | null {
  const match = TIME.exec(text);
  if (!match) return null;
  const value = { $reql_type$: 'TIME' as const, epoch_time: Date.parse(text) / 1000, timezone: match[4] === 'Z' ? '+00:00' : match[4]! };
  // The thirtieth of February is no day.
  return Number.isFinite(value.epoch_time) && time(value).startsWith(match[1]!) ? value : null;
}

// How numbers, times and values are shown.

const number = new Intl.NumberFormat('en', { maximumFractionDigits: 1 });
const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });

export const count = (value: number) => whole.format(value);
export const rate = (value: number) => number.format(value < 10 ? value : Math.round(value));

export function bytes(value: number): string {
  const units = ['B', 'KB', 'MB', 'GB', 'TB'];
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) { value /= 1000; unit += 1; }
  return `${number.format(value)} ${units[unit]}`;
}

/** A length of time in its two largest units. */
export function duration(seconds: number): string {
  if (seconds < 0.001) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${number.format(seconds)} s`;
  const units: [number, string][] = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']];
  const first = units.findIndex(([size]) => seconds >= size);
  return units.slice(first, first + 2).map(([size, name], i) => {
    const value = Math.floor((i === 0 ? seconds : seconds % units[first]![0]) / size);
    return value || i === 0 ? `${value} ${name}` : '';
  }).filter(Boolean).join(' ');
}

/** How long something has been up, in whole seconds. */
export const upTime = (startedAt: number) => duration(Math.max(1, Math.floor(Date.now() / 1000 - startedAt)));

export const plural = (n: number, one: string, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

interface PseudoTime { $reql_type$: 'TIME'; epoch_time: number; timezone: string }
interface PseudoBinary { $reql_type$: 'BINARY'; data: string }

export const isTime = (value: unknown): value is PseudoTime => pseudo(value) === 'TIME';
export const isBinary = (value: unknown): value is PseudoBinary => pseudo(value) === 'BINARY';
export function pseudo(value: unknown): string | undefined {
  return typeof value === 'object' && value !== null && '$reql_type$' in value ? String((value as { $reql_type$: unknown }).$reql_type$) : undefined;
}

/** A time as ISO 8601, in its own zone. */
export function time(value: PseudoTime): string {
  const match = /^([+-])(\d\d):(\d\d)$/.exec(value.timezone);
  const offset = match ? (match[1] === '-' ? -1 : 1) * (Number(match[2]) * 60 + Number(match[3])) : 0;
  const shifted = new Date(value.epoch_time * 1000 + offset * 60000);
  if (Number.isNaN(shifted.getTime())) return `${value.epoch_time} s since 1970`;
  const text = shifted.toISOString();
  const local = text.slice(0, -1).replace(/\.000$/, '');
  return local + (offset === 0 ? 'Z' : value.timezone);
}

export const clock = (seconds: number) => new Date(seconds * 1000).toLocaleTimeString('en-GB');
export const date = (seconds: number) => new Date(seconds * 1000).toLocaleString('en-GB', { dateStyle: 'medium', timeStyle: 'medium' });

/** What makes a value of text visible and harmless: control characters and changes of direction become their names. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, (letter) => `\\u${letter.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** A value on one line, as in a cell. */
export function short(value: unknown, most = 120): string {
  if (value === undefined) return '';
  let text: string;
  if (typeof value === 'string') text = value;
  else if (isTime(value)) text = time(value);
  else if (isBinary(value)) text = `<binary, ${bytes(binaryBytes(value.data))}>`;
  else if (pseudo(value) === 'GEOMETRY') text = `<${String((value as { type?: string }).type)}>`;
  else text = JSON.stringify(value).slice(0, most * 2);
  const line = visible(text.slice(0, most * 2)).replace(/\s+/g, ' ');
  return line.length > most ? `${line.slice(0, most)}…` : line;
}

export const binaryBytes = (base64: string) => Math.max(0, Math.floor((base64.replace(/=+$/, '').length * 3) / 4));

/** The class of a value, for its colour. */
export function kind(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  if (typeof value !== 'object') return typeof value;
  const type = pseudo(value);
  return type ? type.toLowerCase() : Array.isArray(value) ? 'array' : 'object';
}

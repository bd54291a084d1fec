// Rows as files, and files as rows: JSON, JSON lines and CSV.
import type { Json } from './terms';
import type { Row } from './edit';

export type Format = 'json' | 'jsonl' | 'csv';

/** The fields of rows, the primary key first, at most `most`. */
export function columns(rows: readonly unknown[], first?: string, most = Infinity): string[] {
  const found = new Set<string>(first ? [first] : []);
  for (const row of rows) {
    if (typeof row !== 'object' || row === null || Array.isArray(row) || '$reql_type$' in row) continue;
    for (const field of Object.keys(row)) { if (found.size < most) found.add(field); }
  }
  return [...found];
}

const quoted = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function csvCell(value: unknown): string {
  if (value === undefined || value === null) return '';
  return quoted(typeof value === 'string' ? value : JSON.stringify(value));
}

/** Writes rows in a format, piece by piece. */
export class Writer {
  private parts: BlobPart[] = [];
  private wrote = false;
  count = 0;

  constructor(private format: Format, private fields: string[] = []) {}

  add(rows: readonly unknown[]): void {
    if (rows.length === 0) return;
    if (this.format === 'csv') {
      if (!this.wrote) {
        if (this.fields.length === 0) this.fields = columns(rows);
        this.parts.push(`${this.fields.map(quoted).join(',')}\r\n`);
      }
      this.parts.push(rows.map((row) => `${this.fields.map((field) => csvCell((row as Row | null)?.[field])).join(',')}\r\n`).join(''));
    } else if (this.format === 'jsonl') this.parts.push(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    else this.parts.push((this.wrote ? ',\n' : '[\n') + rows.map((row) => JSON.stringify(row)).join(',\n'));
    this.wrote = true;
    this.count += rows.length;
  }

  finish(): Blob {
    if (this.format === 'json') this.parts.push(this.wrote ? '\n]\n' : '[]\n');
    return new Blob(this.parts, { type: this.format === 'csv' ? 'text/csv' : 'application/json' });
  }
}

export function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Reads a file. Fails, with the line, if a part of it cannot be read. */
export function parseFile(text: string, name: string): Row[] {
  const trimmed = text.replace(/^\ufeff/, '').trimStart();
  if (/\.csv$/i.test(name)) return parseCsv(trimmed);
  if (trimmed.startsWith('[')) {
    const rows = JSON.parse(trimmed) as unknown[];
    rows.forEach((row, i) => check(row, `Element ${i + 1}`));
    return rows as Row[];
  }
  return trimmed.split('\n').flatMap((line, i) => {
    if (line.trim() === '') return [];
    try {
      return [check(JSON.parse(line), `Line ${i + 1}`)];
    } catch (failure) {
      throw new Error(failure instanceof SyntaxError ? `Line ${i + 1} is no JSON: ${failure.message}` : String((failure as Error).message));
    }
  });
}

function check(row: unknown, where: string): Row {
  if (typeof row !== 'object' || row === null || Array.isArray(row)) throw new Error(`${where} is no object: a row is { … }.`);
  return row as Row;
}

function parseCsv(text: string): Row[] {
  const lines = records(text);
  const [head, ...rest] = lines;
  if (!head) return [];
  return rest.map(({ cells, line }) => {
    if (cells.length !== head.cells.length) throw new Error(`Line ${line} has ${cells.length} columns; the first line has ${head.cells.length}.`);
    const row: Row = {};
    head.cells.forEach((field, i) => { if (cells[i] !== '') row[field] = cell(cells[i]!); });
    return row;
  });
}

function cell(text: string): Json {
  if (/^(-?(0|[1-9]\d{0,14})(\.\d+)?|true|false|[[{].*)$/s.test(text)) {
    try { return JSON.parse(text) as Json; } catch { return text; }
  }
  return text;
}

function records(text: string): { cells: string[]; line: number }[] {
  const found: { cells: string[]; line: number }[] = [];
  let cells: string[] = [], cellText = '', isQuoted = false, line = 1, start = 1;
  const end = () => {
    cells.push(cellText);
    if (cells.length > 1 || cells[0] !== '') found.push({ cells, line: start });
    cells = []; cellText = ''; start = line + 1;
  };
  for (let i = 0; i < text.length; i++) {
    const letter = text[i]!;
    if (isQuoted) {
      if (letter === '"' && text[i + 1] === '"') { cellText += '"'; i++; } else if (letter === '"') isQuoted = false;
      else { if (letter === '\n') line += 1; cellText += letter; }
    } else if (letter === '"' && cellText === '') isQuoted = true;
    else if (letter === ',') { cells.push(cellText); cellText = ''; }
    else if (letter === '\n') { end(); line += 1; } else if (letter !== '\r') cellText += letter;
  }
  if (isQuoted) throw new Error(`A quoted cell that begins in the record of line ${start} does not end.`);
  if (cellText !== '' || cells.length) end();
  return found;
}

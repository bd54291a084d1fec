// Rows as files: JSON, JSON lines and CSV.
import { padded, written } from './csv';
import { hasFields } from './paths';
import type { Row } from './edit';

export type Format = 'json' | 'jsonl' | 'csv';

/** Text that is held before it goes to the browser, which keeps large files outside of the page's memory. */
const PIECE_CHARS = 4 << 20;

/** The fields of rows, at most `most`. */
export function columns(rows: readonly unknown[], most = Infinity): string[] {
  const found = new Set<string>();
  for (const row of rows) {
    if (!hasFields(row)) continue;
    for (const field of Object.keys(row)) { if (found.size < most) found.add(field); }
  }
  return [...found];
}

/** Writes rows in a format, piece by piece. In CSV, fields that come later become further columns. */
export class Writer {
  private texts: string[] = [];
  private chars = 0;
  private pieces: { blob: Blob; columns: number }[] = [];
  private fields = new Map<string, number>();
  count = 0;

  constructor(private format: Format, first?: string) {
    if (first !== undefined) this.fields.set(first, 0);
  }

  add(rows: readonly unknown[]): void {
    if (rows.length === 0) return;
    if (this.format === 'csv') this.put(this.csv(rows));
    else if (this.format === 'jsonl') this.put(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
    else this.put((this.count ? ',\n' : '[\n') + rows.map((row) => JSON.stringify(row)).join(',\n'));
    this.count += rows.length;
  }

  // Values that are no rows are in a column of their own.
  private csv(rows: readonly unknown[]): string {
    const asRows = rows.map((row) => (hasFields(row) ? row : { value: row }) as Row);
    const added = columns(asRows).filter((field) => !this.fields.has(field));
    if (added.length && this.fields.size) this.flush();
    for (const field of added) this.fields.set(field, this.fields.size);
    const names = [...this.fields.keys()];
    return asRows.map((row) => `${names.map((name) => (Object.hasOwn(row, name) ? written(row[name]) : '')).join(',')}\r\n`).join('');
  }

  private put(text: string): void {
    this.texts.push(text);
    this.chars += text.length;
    if (this.chars >= PIECE_CHARS) this.flush();
  }

  private flush(): void {
    if (this.texts.length) this.pieces.push({ blob: new Blob(this.texts), columns: this.fields.size });
    this.texts = [];
    this.chars = 0;
  }

  async finish(): Promise<Blob> {
    if (this.format === 'json') this.put(this.count ? '\n]\n' : '[]\n');
    this.flush();
    if (this.format !== 'csv') return new Blob(this.pieces.map(({ blob }) => blob), { type: 'application/json' });
    const parts: BlobPart[] = [`${[...this.fields.keys()].map(written).join(',')}\r\n`];
    for (const { blob, columns } of this.pieces) parts.push(columns === this.fields.size ? blob : new Blob([padded(await blob.text(), this.fields.size - columns)]));
    return new Blob(parts, { type: 'text/csv' });
  }
}

/** Saves a file; its name has no letters that a system may refuse. */
export function download(blob: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

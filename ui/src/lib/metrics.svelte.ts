// The figures of the last hour and the last day, which each server keeps.
import { app } from './app.svelte';
import { object, system, type Term } from './terms';

export type Span = 'hour' | 'day';
const INTERVALS: Record<Span, number> = { hour: 10, day: 120 };
/** Seconds that the charts cover. */
export const LENGTHS: Record<Span, number> = { hour: 3600, day: 86_400 };
const FIGURES = ['queries_per_sec', 'reads_per_sec', 'writes_per_sec', 'latency_mean_ms', 'latency_p99_ms', 'memory_bytes', 'disk_bytes', 'cpu_cores'] as const;
export type Figure = (typeof FIGURES)[number];
type Sample = Record<Figure, number>;
type Columns = Record<Figure, number[]> & { server: string; at: number[] };

/** The figures of the last ten seconds. */
export interface Last { reads: number; writes: number; latency: number }
export interface Curves { at: number[]; values: Record<Figure, (number | null)[]> }

/** The samples of servers, of which only the new ones are asked for. */
export class Metrics {
  private servers = new Map<string, Map<number, Sample>>();
  private last = 0;
  curves = $state.raw<Curves | undefined>(undefined);

  constructor(readonly span: Span, private server?: string) {}

  get interval(): number { return INTERVALS[this.span]; }

  /** Asks for the samples since the last answer. */
  async ask(): Promise<Curves> {
    const interval = this.interval;
    let rows = system('_metrics').filter({ interval_sec: interval, ...(this.server === undefined ? {} : { server: this.server }) });
    if (this.last) {
      // The last interval may have been incomplete.
      const count = Math.ceil((Date.now() / 1000 - this.last) / interval) + 2;
      const part = (row: Term, name: string) => row.row(name).slice(-count);
      rows = rows.map((row) => object(Object.fromEntries([['server', row.row('server')], ...['at', ...FIGURES].map((name) => [name, part(row, name)])])));
    }
    for (const columns of await app.run<Columns[]>(rows)) this.take(columns);
    return (this.curves = this.joined());
  }

  private take(columns: Columns): void {
    const samples = this.servers.get(columns.server) ?? new Map<number, Sample>();
    this.servers.set(columns.server, samples);
    columns.at.forEach((at, i) => {
      samples.set(at, Object.fromEntries(FIGURES.map((figure) => [figure, columns[figure][i] ?? 0])) as Sample);
      this.last = Math.max(this.last, at);
    });
    for (const at of samples.keys()) if (at < this.last - LENGTHS[this.span]) samples.delete(at);
  }

  // All servers together. Times at which no server was running have no value.
  private joined(): Curves {
    const times = new Set([...this.servers.values()].flatMap((samples) => [...samples.keys()]));
    const at: number[] = [];
    const values = Object.fromEntries(FIGURES.map((figure) => [figure, []])) as unknown as Curves['values'];
    const first = Math.min(...times);
    for (let time = first; times.size && time <= this.last; time += this.interval) {
      at.push(time);
      const seen = [...this.servers.values()].flatMap((samples) => samples.get(time) ?? []);
      for (const figure of FIGURES) values[figure].push(seen.length ? together(figure, seen) : null);
    }
    return { at, values };
  }
}

function together(figure: Figure, samples: Sample[]): number {
  const sum = (of: (sample: Sample) => number) => samples.reduce((all, sample) => all + of(sample), 0);
  if (figure === 'latency_p99_ms') return Math.max(...samples.map((sample) => sample[figure]));
  if (figure !== 'latency_mean_ms') return sum((sample) => sample[figure]);
  const queries = sum((sample) => sample.queries_per_sec);
  return queries ? sum((sample) => sample[figure] * sample.queries_per_sec) / queries : 0;
}

// Reads and writes a second since the console was opened, for the chart of the overview.
import { app } from './app.svelte';
import { clusterStats, type Rates } from './questions';

const SAMPLES_MAX = 150;

export interface Sample { at: number; reads: number; writes: number }

class History {
  samples = $state.raw<Sample[]>([]);
  rates = $state.raw<Rates>({});

  async ask(): Promise<Rates> {
    const stat = await clusterStats();
    const rates = stat?.query_engine ?? {};
    this.rates = rates;
    const sample = { at: Date.now(), reads: rates.read_docs_per_sec ?? 0, writes: rates.written_docs_per_sec ?? 0 };
    this.samples = [...this.samples, sample].slice(-SAMPLES_MAX);
    return rates;
  }
}

export const history = new History();
export const isOpen = () => app.wire === 'open';

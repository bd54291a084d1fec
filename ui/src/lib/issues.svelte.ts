// The issues of the cluster, asked for once for all parts of the page.
import type { Live } from './app.svelte';
import type { Issue } from './questions';

class Issues {
  live = $state.raw<Live<Issue[]> | undefined>(undefined);
}

export const issues = new Issues();

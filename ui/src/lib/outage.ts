// Why the rows of a table cannot be read.
import type { TableStatus } from './questions';

/** The servers without which a table cannot be read, in a sentence; empty if it can be, or if no server is missing. */
export function outage({ status, shards }: TableStatus): string {
  if (status.ready_for_reads) return '';
  const isAway = ({ state }: { state: string }) => state === 'disconnected';
  const missing = [...new Set(shards.flatMap(({ replicas }) => replicas.filter(isAway).map(({ server }) => server)))].sort();
  if (missing.length === 0) return '';
  return `${shards.some(({ replicas }) => replicas.every(isAway)) ? 'No server that has the rows is connected' : 'Too few servers that have the rows are connected. These are not'}: ${missing.join(', ')}.`;
}

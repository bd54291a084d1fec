// Moves the replicas of a server to others, so that it can be removed without a loss.
import type { TableConfig } from './questions';

type Shard = TableConfig['shards'][number];
/** `to`: the servers that get replicas, by shard; null where no other server can take one. */
export interface Move { id: string; table: string; shards: Shard[]; to: (string | null)[]; isLast: boolean }

/**
 * What becomes of each table with replicas on `server`. A connected server without a replica of the shard takes its place, the one with the fewest
 * replicas first; without one the shard has a replica less. `isLast`: a shard has no other voting replica and no server to take it.
 */
export function evacuation(server: string, tables: TableConfig[], connected: string[]): Move[] {
  const load = new Map(connected.filter((name) => name !== server).map((name) => [name, 0]));
  for (const name of tables.flatMap((table) => table.shards).flatMap((shard) => shard.replicas)) if (load.has(name)) load.set(name, load.get(name)! + 1);
  return tables.filter((table) => table.shards.some((shard) => shard.replicas.includes(server))).map((table) => {
    const to: (string | null)[] = [];
    let isLast = false;
    const shards = table.shards.map((shard) => {
      if (!shard.replicas.includes(server)) return shard;
      const free = [...load].filter(([name]) => !shard.replicas.includes(name)).sort((a, b) => a[1] - b[1])[0]?.[0] ?? null;
      if (free !== null) load.set(free, load.get(free)! + 1);
      to.push(free);
      const moved = (names: string[]) => names.flatMap((name) => (name !== server ? [name] : free === null ? [] : [free]));
      const replicas = moved(shard.replicas), nonvoting_replicas = moved(shard.nonvoting_replicas);
      const voting = replicas.filter((name) => !nonvoting_replicas.includes(name));
      if (!voting.length) isLast = true;
      // A replica that has the rows leads at once; a new one only where there is no other.
      const old = voting.filter((name) => shard.replicas.includes(name));
      return { replicas, nonvoting_replicas, primary_replica: shard.primary_replica === server ? old[0] ?? voting[0] ?? '' : shard.primary_replica };
    });
    return { id: table.id, table: `${table.db}.${table.name}`, shards, to, isLast };
  });
}

// What a table survives, and what the removal of a server costs.
import { bytes, plural } from './format';
import type { Stat, TableConfig } from './questions';

/** What shards with this number of voting replicas survive. */
export function survived(replicas: number): { kind: 'good' | 'warn' | 'bad'; text: string } {
  const lost = Math.floor((replicas - 1) / 2);
  if (replicas <= 1) return { kind: 'bad', text: 'while its server is away, its rows can be neither read nor written, and they are gone if it does not come back.' };
  if (lost === 0) return { kind: 'warn', text: 'one lost server loses no row, but writes wait until it is back or the table is repaired.' };
  return { kind: 'good', text: `${plural(lost, 'lost server')} ${lost === 1 ? 'is' : 'are'} survived without a pause; ${replicas - 1} lose no row, but writes wait.` };
}

export interface Loss { id: string; table: string; shards: number; others: number; bytes: number }

/** The replicas that go with a server: shards of each table, the fewest replicas that are left of one, and about how many bytes a new replica needs. */
export function losses(server: string, tables: TableConfig[], stats: Stat[]): Loss[] {
  return tables.map((table) => {
    const here = table.shards.filter((shard) => shard.replicas.includes(server));
    // Any server with the table tells about how large a shard is.
    const sizes = stats.filter((stat) => stat.id[0] === 'table_server' && stat.id[1] === table.id && stat.storage_engine).map((stat) => {
      const held = table.shards.filter((shard) => stat.server !== undefined && shard.replicas.includes(stat.server)).length;
      return held ? stat.storage_engine!.disk.space_usage.data_bytes / held : 0;
    });
    return { id: table.id, table: `${table.db}.${table.name}`, shards: here.length, others: Math.min(...here.map((shard) => shard.replicas.length - 1)), bytes: Math.max(0, ...sizes) * here.length };
  }).filter((loss) => loss.shards > 0).sort((a, b) => a.others - b.others || b.bytes - a.bytes);
}

/** The cost of a removal in one sentence. */
export function cost(found: Loss[]): string {
  if (!found.length) return 'It has no replicas: nothing has to be copied.';
  const shards = found.reduce((sum, loss) => sum + loss.shards, 0), size = found.reduce((sum, loss) => sum + loss.bytes, 0);
  return `It has replicas of ${plural(shards, 'shard')} in ${plural(found.length, 'table')}. To have as many replicas again, about ${bytes(size)} are copied from other servers once the tables are reconfigured.`;
}

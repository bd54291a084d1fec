// Issues as people see them: what one lost server does to tables is one card.
import { plural } from './format';
import type { Issue, TableStatus } from './questions';

export interface Affected { id: string; db: string; name: string; what: string; isRepairable: boolean }
/** Issues with one cause. `servers` are those that are missing; `tables` is empty for issues of other kinds. */
export interface Card { id: string; title: string; issue: Issue; critical: boolean; servers: string[]; tables: Affected[] }

const TITLES: Record<string, string> = {
  catalog_availability: 'The common configuration cannot be changed', non_transitive_error: 'Servers do not see each other',
};
/** Kinds whose information names one server. */
const OF_SERVERS: Record<string, string> = {
  log_write_error: 'cannot write its log file', disk_error: 'cannot write to its disk', memory_error: 'is short of memory', data_damage: 'has damaged data',
};

/** Cards with critical ones first. */
export function cards(issues: Issue[]): Card[] {
  const byServers = new Map<string, Card>();
  const others: Card[] = [];
  for (const issue of issues) {
    if (issue.type !== 'table_availability') {
      others.push({ id: issue.id, title: titleOf(issue), issue, critical: issue.critical, servers: [], tables: [] });
      continue;
    }
    const servers = missing(issue), key = servers.join('\n');
    const card = byServers.get(key) ?? { id: issue.id, title: '', issue, critical: false, servers, tables: [] };
    byServers.set(key, card);
    card.critical ||= issue.critical;
    card.tables.push(affected(issue));
  }
  const grouped = [...byServers.values()];
  for (const card of grouped) {
    card.tables.sort((a, b) => Number(b.isRepairable) - Number(a.isRepairable) || a.db.localeCompare(b.db) || a.name.localeCompare(b.name));
    card.title = titleOfTables(card);
  }
  return [...grouped, ...others].sort((a, b) => Number(b.critical) - Number(a.critical));
}

function titleOf(issue: Issue): string {
  const server = [issue.info.servers].flat()[0];
  if (OF_SERVERS[issue.type]) return `${server === undefined ? 'A server' : String(server)} ${OF_SERVERS[issue.type]}`;
  if (issue.type === 'server_name_collision') return `Several servers are named ${String(issue.info.name)}`;
  return TITLES[issue.type] ?? issue.type;
}

function titleOfTables({ servers, tables }: Card): string {
  const one = tables[0]!;
  if (tables.length === 1) return `${one.db}.${one.name} ${one.what}`;
  const count = plural(tables.length, 'table');
  if (!servers.length) return `${count} are not fully available`;
  return `${servers.length === 1 ? `${servers[0]} is` : `${servers.join(', ')} are`} not connected: ${count} are affected`;
}

interface Shards { replicas: { server: string; state: string }[] }
const shardsOf = (issue: Issue) => (Array.isArray(issue.info.shards) ? (issue.info.shards as unknown as Shards[]) : []);
const gone = (shard: Shards) => shard.replicas.filter((replica) => replica.state === 'disconnected').map((replica) => replica.server);
const missing = (issue: Issue) => [...new Set(shardsOf(issue).flatMap(gone))].sort();

function affected(issue: Issue): Affected {
  const status = issue.info.status as TableStatus['status'] | undefined;
  const fewer = Math.max(1, ...shardsOf(issue).map((shard) => gone(shard).length));
  const what = status?.ready_for_writes ? `has ${fewer === 1 ? 'a replica' : `${fewer} replicas`} too few` : status?.ready_for_reads ? 'can be read but not written' : 'cannot be used';
  return { id: issue.id, db: String(issue.info.db), name: String(issue.info.table), what, isRepairable: !status?.ready_for_writes };
}

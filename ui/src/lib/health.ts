// The state of everything in one sentence.
import { count, plural } from './format';
import { health, type Issue, type ServerConfig, type ServerStatus, type TableStatus } from './questions';

export interface State { issues: Issue[]; tables: TableStatus[]; configured: ServerConfig[]; connected: ServerStatus[] }
export interface Said { kind: 'good' | 'warn' | 'bad'; text: string }

/** What does not work and which server is missing; if all is well, what would not survive the loss of a server. */
export function sentence({ issues, tables, configured, connected }: State): Said {
  const unusable = tables.filter((table) => !table.status.ready_for_reads).length;
  const readOnly = tables.filter((table) => table.status.ready_for_reads && !table.status.ready_for_writes).length;
  const fewer = tables.filter((table) => health(table).kind === 'warn').length;
  const missing = configured.filter((server) => !connected.some((one) => one.id === server.id));
  const others = issues.filter((issue) => issue.type !== 'table_availability').length;
  const parts: string[] = [];
  // Only the first number names what it counts.
  const tell = (number: number, one: string, many: string) => { if (number) parts.push(`${parts.length ? count(number) : plural(number, 'table')} ${number === 1 ? one : many}`); };
  tell(unusable, 'cannot be used', 'cannot be used');
  tell(readOnly, 'can only be read', 'can only be read');
  tell(fewer, 'has fewer replicas than it should', 'have fewer replicas than they should');
  if (missing.length) parts.push(missing.length === 1 ? `${missing[0]!.name} is not connected` : `${count(missing.length)} servers are not connected`);
  if (others) parts.push(parts.length ? `there ${others === 1 ? 'is' : 'are'} ${plural(others, 'other issue')}` : plural(others, 'issue needs attention', 'issues need attention'));
  else if (!parts.length && issues.length) parts.push(plural(issues.length, 'issue needs attention', 'issues need attention'));
  if (parts.length) return { kind: unusable || readOnly || issues.some((issue) => issue.critical) ? 'bad' : 'warn', text: `${joined(parts)}.` };
  return { kind: 'good', text: `All is well${whole(tables.length, connected.length)}${risk(tables, configured.length)}` };
}

function joined(parts: string[]): string {
  if (parts.length < 2) return parts.join('');
  return `${parts.slice(0, -1).join(', ')}${parts.length > 2 ? ',' : ''} and ${parts.at(-1)}`;
}

function whole(tables: number, servers: number): string {
  const on = plural(servers, 'server');
  return tables ? `: ${tables === 1 ? 'the table is' : `all ${count(tables)} tables are`} ready on ${on}.` : ` on ${on}. There are no tables yet.`;
}

function risk(tables: TableStatus[], servers: number): string {
  const alone = servers > 1 ? tables.filter((table) => table.shards.some((shard) => shard.replicas.length === 1)).length : 0;
  return alone ? ` ${plural(alone, 'table')} would stop if ${alone === 1 ? 'its' : 'their'} server did.` : '';
}

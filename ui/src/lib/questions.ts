// What pages ask the system tables, and the rows that answer.
import { app } from './app.svelte';
import { db, dbList, desc, object, system, type Json } from './terms';
import { QueryError } from './wire';

export interface Issue { id: string; type: string; critical: boolean; description: string; info: Record<string, Json> }
export interface TableConfig {
  id: string; name: string; db: string; primary_key: string; durability: string; write_acks: string; indexes: string[];
  write_hook: { query: string } | null;
  shards: { primary_replica: string; replicas: string[]; nonvoting_replicas: string[] }[];
}
export interface TableStatus {
  id: string; name: string; db: string;
  status: { ready_for_outdated_reads: boolean; ready_for_reads: boolean; ready_for_writes: boolean; all_replicas_ready: boolean };
  shards: { primary_replicas: string[]; replicas: { server: string; state: string }[] }[];
}
export interface ServerStatus {
  id: string; name: string; error?: string;
  network: { hostname: string; cluster_port: number; reql_port: number; http_admin_port: number | string; connected_to: Record<string, boolean>; time_connected: { epoch_time: number }; canonical_addresses: { host: string; port: number }[] };
  process: { cache_size_mb: number; pid: number; time_started: { epoch_time: number }; version: string; argv: string[] };
}
export interface ServerConfig { id: string; name: string; tags: string[]; cache_size_mb: number | 'auto' }
export interface Job {
  id: [string, string]; type: string; duration_sec: number; servers: string[];
  info: { client_address?: string; client_port?: number; user?: string; query?: string; db?: string; table?: string; index?: string; progress?: number; source_server?: string; destination_server?: string };
}
export interface LogLine { id: [string, string]; level: string; message: string; server: string; timestamp: { epoch_time: number } }
export interface Rates { read_docs_per_sec?: number; written_docs_per_sec?: number; queries_per_sec?: number; client_connections?: number; clients_active?: number }
export interface Stat { id: string[]; db?: string; table?: string; server?: string; error?: string; query_engine?: Rates; storage_engine?: { cache: { in_use_bytes: number }; disk: { space_usage: { data_bytes: number } } } }

export const currentIssues = () => app.run<Issue[]>(system('current_issues'));
export const tableStatuses = () => app.run<TableStatus[]>(system('table_status'));
export const tableConfigs = () => app.run<TableConfig[]>(system('table_config'));
export const serverStatuses = () => app.run<ServerStatus[]>(system('server_status').orderBy({}, 'name'));
export const serverConfigs = () => app.run<ServerConfig[]>(system('server_config').orderBy({}, 'name'));
export const databases = () => app.run<{ id: string; name: string }[]>(system('db_config').orderBy({}, 'name'));
export const stats = () => app.run<Stat[]>(system('stats'));
/** The queries of this console's pages, by their text: system tables, what tables are like, shown rows, one row, and the feed of shown rows. Exports are work that one may want to stop. */
const OWN = '^r\\.db\\("rethinkdb"\\)|"?identifierFormat"?: "name"\\}\\)\\s*\\.(get|((between\\([\\s\\S]*\\)|filter\\([\\s\\S]*\\))\\s*\\.)?orderBy)\\(|\\.(config|status|info|indexStatus)\\(\\)$|\\.changes\\(\\{"?squash"?: 0\\.30*\\}\\)$';
export const isOwn = (job: Job) => job.type === 'query' && new RegExp(OWN).test(job.info.query ?? '');
export const jobs = () => app.run<Job[]>(system('jobs'));
export interface SlowQuery { id: string; server: string; user: string; client_address: string; client_port: number; query: string; ended: { epoch_time: number }; duration_sec: number; plan: unknown }
/** The slowest finished queries of the last hour on all servers, with those of the console's pages only if `withOwn`. */
export async function slowQueries(most: number, withOwn: boolean): Promise<SlowQuery[]> {
  const all = system('_slow_queries');
  return app.run<SlowQuery[]>((withOwn ? all : all.filter((row) => row.row('query').match(OWN).eq(null))).orderBy({}, desc('duration_sec')).limit(most));
}
export const lastLogs = (limit: number) => app.run<LogLine[]>(system('logs').limit(limit));

/** Whether a table serves everything, and how a badge names it. */
export function health(status: TableStatus): { kind: 'good' | 'warn' | 'bad'; text: string } {
  const { ready_for_outdated_reads, ready_for_reads, ready_for_writes, all_replicas_ready } = status.status;
  if (!ready_for_outdated_reads) return { kind: 'bad', text: 'Unavailable' };
  if (!ready_for_reads) return { kind: 'bad', text: 'Outdated reads only' };
  if (!ready_for_writes) return { kind: 'bad', text: 'Reads only' };
  return all_replicas_ready ? { kind: 'good', text: 'Ready' } : { kind: 'warn', text: 'Replicas not ready' };
}

/** The outcome of a write. */
export interface Written { inserted?: number; replaced?: number; unchanged?: number; deleted?: number; skipped?: number; errors?: number; first_error?: string; changes?: { new_val: unknown; old_val: unknown; error?: string }[]; generated_keys?: string[] }

/** Fails with the first error of a write. */
export function succeeded(written: Written): Written {
  if (written.errors) throw new Error(written.first_error ?? 'The write failed.');
  return written;
}

/** Changes one row of a system table. */
export async function configure(table: string, id: Json, change: Record<string, Json>): Promise<void> {
  succeeded(await app.run<Written>(system(table).get(id).update(object(change))));
}

/** All tables with the names of their databases. */
export async function tableNames(): Promise<{ db: string; name: string }[]> {
  const all = await allowed(app.run<{ db: string; name: string }[]>(system('table_config').pluck('db', 'name')));
  return all ?? (await listed()).flatMap(({ name: db, tables }) => tables.map((name) => ({ db, name })));
}

/** What users learn who may not read the system tables: the names. */
export async function listed(): Promise<{ name: string; tables: string[] }[]> {
  const all = await app.run<{ name: string; tables: string[] }[]>(dbList().map((name) => ({ name, tables: db(name).tableList() })));
  return all.filter(({ name }) => !isSystem(name)).sort((a, b) => a.name.localeCompare(b.name));
}

/** Of the first tables, those that the user may read. */
export async function readable(most: number): Promise<{ db: string; name: string; health: ReturnType<typeof health> }[]> {
  const names = (await listed()).flatMap(({ name: db, tables }) => tables.map((name) => ({ db, name }))).slice(0, most);
  const found = await Promise.all(names.map(async ({ db: database, name }) => {
    // Everybody may ask for the status. A table that is unavailable may be read, too.
    const may = await allowed(app.run(db(database).table(name).limit(1).count())).catch(() => 1);
    const status = may === null ? null : await app.run<TableStatus>(db(database).table(name).status()).catch(() => null);
    return status ? [{ db: database, name, health: health(status) }] : [];
  }));
  return found.flat();
}

/** The answer, or null if the user has not the permission to ask. */
export async function allowed<T>(answer: Promise<T>): Promise<T | null> {
  try {
    return await answer;
  } catch (error) {
    if (error instanceof QueryError && error.kind === 'permission') return null;
    throw error;
  }
}

export const isSystem = (database: string) => database === 'rethinkdb';
export const dbTerm = db;

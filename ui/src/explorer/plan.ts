// How the server ran a query, as a tree: the result, the steps at the top, the steps where the rows are, and the reads.
import { count, duration, plural, short } from '../lib/format';

export interface Read { by: string; table: string; shards?: number; on_other_servers?: number; on_the_rows?: string[]; order?: string; times?: number }
export interface Explained { answer: string; at_the_top?: string[]; items?: number; milliseconds?: number; query: string; reads?: Read[]; rows_looked_at?: number; is_partial?: boolean; reads_left_out?: number }
interface Task { description: string; 'duration(ms)': number; sub_tasks?: Task[]; parallel_tasks?: Task[][] }
/** A step, and the steps whose rows it takes. `isCostly`: a whole table was read. */
export interface Step { name: string; detail: string; place: string; facts: string[]; isRead: boolean; isCostly: boolean; below: Step[] }

const time = (milliseconds: number | undefined) => (milliseconds ? [duration(milliseconds / 1000)] : []);

// How many of the shards of a read are on other servers than the one that ran the query.
function elsewhere(shards: number, others: number): string {
  if (others === 0) return '';
  if (others < shards) return `, ${count(others)} on ${others === 1 ? 'another server' : 'other servers'}`;
  return shards === 1 ? ', on another server' : `, ${shards === 2 ? 'both' : 'all'} on other servers`;
}

/** What a query answers, in words. The plan of an array does not have its size. */
export function answered({ answer, items, query }: Explained): string {
  if (answer !== 'value') return plural(items ?? 0, 'item');
  const limit = /\.limit\((\d+)\)$/.exec(query)?.[1];
  if (limit !== undefined) return `an array of up to ${count(Number(limit))}`;
  return /\.coerceTo\("array"\)$/.test(query) ? 'an array' : 'one value';
}

// A filter of one field's value, as users and the server write it.
const VALUE = String.raw`('(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|-?\d+(?:\.\d+)?|true|false)`;
const EQUALITIES = [
  String.raw`\{\s*(['"]?)FIELD\1\s*:\s*VALUE\s*\}`,
  String.raw`(?:\(?(\w+)\)?\s*=>\s*\1|r\.row)\(\s*['"]FIELD['"]\s*\)\.eq\(\s*VALUE\s*\)`,
  String.raw`function\s*\((\w+)\)\s*\{\s*return r\.eq\(\1\("FIELD"\), VALUE\);\s*\}`,
];

/** The query with an index instead of the filter of a field; null if that is not plain to see. */
export function withIndex(query: string, field: string, index: string): { found: string; text: string } | null {
  const name = field.replace(/[^\w]/g, '\\$&');
  for (const pattern of EQUALITIES) {
    const match = new RegExp(`(\\.table\\((?:'[^']*'|"[^"]*")\\)\\s*)\\.filter\\(\\s*${pattern.replace('\\1', '\\2').replace('FIELD', () => name).replace('VALUE', () => VALUE)}\\s*\\)`).exec(query);
    if (!match) continue;
    const found = `getAll(${match[3]}, {index: ${quoted(index, match[3]!)}})`;
    return { found, text: `${query.slice(0, match.index)}${match[1]}.${found}${query.slice(match.index + match[0].length)}` };
  }
  return null;
}
// In the quotes of the text beside it.
const quoted = (name: string, beside: string) => (beside.startsWith('"') || /['\\]/.test(name) ? JSON.stringify(name) : `'${name}'`);

/** The tree of a plan. `profile` has the times and rows of single reads. */
export function planTree(plan: Explained, profile: unknown): Step {
  const reads = plan.reads ?? [];
  const tasks = ((profile as Task[] | undefined)?.[0]?.sub_tasks ?? []).filter((task) => task.description.startsWith('Perform read of'));
  let below = reads.map((read, i) => readStep(read, tasks[i], reads.length === 1 ? plan.rows_looked_at : undefined));
  if (plan.reads_left_out) below.push({ name: `${plural(plan.reads_left_out, 'more read')}`, detail: '', place: '', facts: [], isRead: true, isCostly: false, below: [] });
  for (const name of plan.at_the_top ?? []) below = [{ name: short(name), detail: '', place: 'at the top', facts: [], isRead: false, isCostly: false, below }];
  const facts = [...(plan.items === undefined ? [] : [answered(plan)]), ...time(plan.milliseconds)];
  return { name: plan.answer === 'stream' ? 'Stream' : 'Value', detail: '', place: '', facts, isRead: false, isCostly: false, below };
}

function readStep(read: Read, task: Task | undefined, looked: number | undefined): Step {
  const ranges = (task?.sub_tasks ?? []).flatMap((one) => one.parallel_tasks ?? []).flat();
  const rows = ranges.map((one) => Number(/Reading (\d+) rows/.exec(one.description)?.[1] ?? 0));
  const sum = ranges.length ? rows.reduce((a, b) => a + b, 0) : looked;
  const facts = [
    ...(sum === undefined ? [] : [`${plural(sum, 'row')} looked at`]), ...time(task?.['duration(ms)']),
    ...(read.shards ? [`${plural(read.shards, 'shard')}${elsewhere(read.shards, read.on_other_servers ?? 0)}`] : []),
    ...(read.order && read.order !== 'any' ? [read.order] : []), ...(read.times && read.times > 1 ? [`${count(read.times)} times`] : []),
  ];
  if (ranges.length > 1) {
    const times = ranges.map((one) => one['duration(ms)'] / 1000);
    facts.push(`${count(ranges.length)} ranges at the same time, of ${count(Math.min(...rows))} to ${count(Math.max(...rows))} rows, in ${duration(Math.min(...times))} to ${duration(Math.max(...times))}`);
  }
  let step: Step = { name: short(read.table), detail: short(read.by), place: '', facts, isRead: true, isCostly: read.by === 'all rows', below: [] };
  for (const name of read.on_the_rows ?? []) step = { name: short(name), detail: '', place: 'where the rows are', facts: [], isRead: false, isCostly: false, below: [step] };
  return step;
}

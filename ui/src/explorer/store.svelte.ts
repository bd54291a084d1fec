// The explorer's tabs, results and history. They stay while other pages are open; texts and history are kept by the browser.
import { app, read, write } from '../lib/app.svelte';
import { QueryError, type Cursor } from '../lib/wire';
import type { Wire } from '../lib/terms';
import { message, Result, ROWS_MAX } from './result.svelte';
import { Sandbox, type BuiltQuery, type Outcome as Ended } from './sandbox';
import type { SavedQuery } from './saved.svelte';
import type { Failed, Script } from './editor';
import { missingMethod, noQuery, withHint } from './hints';

const HISTORY_MAX = 1000;
const CHANGES = 152, LIMIT = 71;

/** `saved`: the saved query that it shows, as it was read. */
export interface Tab { id: number; text: string; saved?: SavedQuery }
export interface Past { at: number; text: string }
export type View = 'tree' | 'table' | 'raw' | 'chart';

/** What the last run of a tab has given. */
class Outcome {
  results = $state.raw<Result[]>([]);
  shown = $state(0);
  error = $state('');
  /** The part of the text that is wrong, and the text that was run. */
  wrong = $state.raw<{ from: number; to: number } | null>(null);
  text = '';
  /** The last query that the server refused, with its message. */
  failed: (Failed & { said: string }) | null = null;

  begin(text: string): void {
    this.stop();
    this.results = [];
    this.shown = 0;
    this.error = '';
    this.wrong = null;
    this.failed = null;
    this.text = text;
  }

  push(result: Result): void {
    this.results = [...this.results, result];
    this.shown = this.results.length - 1;
  }

  stop(): void { this.results.forEach((result) => result.stop()); }
}

class Explorer {
  tabs = $state<Tab[]>([]);
  current = $state(0);
  view = $state<View>('tree');
  isRunning = $state(false);
  isLive = $state(false);
  past = $state.raw<Past[]>([]);
  isForgetful = $state(false);
  private sandbox: Sandbox | null = null;
  private outcomes = new Map<number, Outcome>();
  /** That of the tab whose query is running. */
  private running: Outcome | null = null;
  /** Queries that the server has not answered yet. */
  private unanswered = new Set<number>();
  private nextTab = 1;
  /** Part of the names under which the browser keeps texts: they belong to this user. */
  private readonly user = app.user ?? '';

  constructor() {
    const stored = parse<Tab[]>(read(`tabs.${this.user}`)) ?? [];
    this.tabs = stored.length ? stored : [{ id: 1, text: '' }];
    for (const tab of this.tabs) this.outcomes.set(tab.id, new Outcome());
    this.nextTab = Math.max(...this.tabs.map((tab) => tab.id)) + 1;
    this.current = this.tabs[0]!.id;
    this.past = parse<Past[]>(read(`history.${this.user}`)) ?? [];
  }

  /** What the current tab has given. */
  get outcome(): Outcome { return this.outcomes.get(this.current)!; }

  get tab(): Tab | undefined { return this.tabs.find((tab) => tab.id === this.current); }

  /** Notes the saved query that the current tab shows. */
  setSaved(saved: SavedQuery | undefined): void {
    if (this.tab) this.tab.saved = saved;
    this.keep();
  }

  get text(): string { return this.tabs.find((tab) => tab.id === this.current)?.text ?? ''; }

  set(text: string): void {
    const tab = this.tabs.find((one) => one.id === this.current);
    if (!tab) return;
    tab.text = text;
    this.keep();
  }

  private keep(): void { this.isForgetful = !write(`tabs.${this.user}`, JSON.stringify(this.tabs)); }

  add(text = '', saved?: SavedQuery): void {
    const id = this.nextTab++;
    this.outcomes.set(id, new Outcome());
    this.tabs.push({ id, text, saved });
    this.current = id;
    this.keep();
  }

  /** Closes a tab. Returns what brings it back. */
  remove(id: number): () => void {
    const at = this.tabs.findIndex((tab) => tab.id === id), tab = this.tabs[at], outcome = this.outcomes.get(id);
    if (!tab || !outcome) return () => {};
    this.tabs = this.tabs.filter((one) => one !== tab);
    if (!this.tabs.length) this.add();
    if (this.current === id) this.current = this.tabs.at(-1)!.id;
    outcome.stop();
    this.outcomes.delete(id);
    this.keep();
    return () => {
      this.outcomes.set(id, outcome);
      this.tabs = [...this.tabs.slice(0, at), tab, ...this.tabs.slice(at)];
      this.current = id;
      this.keep();
    };
  }

  private remember(text: string): void {
    if (text.trim() === '' || this.past[0]?.text === text) return;
    this.past = [{ at: Date.now(), text }, ...this.past].slice(0, HISTORY_MAX);
    this.isForgetful = !write(`history.${this.user}`, JSON.stringify(this.past));
  }

  forget(): void {
    this.past = [];
    write(`history.${this.user}`, '[]');
  }

  prepare(): Sandbox { return (this.sandbox ??= new Sandbox()); }

  async run(text: string, script: Script, isPlan = false): Promise<void> {
    if (this.isRunning) return;
    this.remember(text);
    const { outcome } = this;
    outcome.begin(text);
    this.running = outcome;
    this.isRunning = true;
    const end = await this.prepare().run(script.code, script.statements.map((statement) => statement.text), {
      query: (query) => this.query(outcome, query, script, isPlan),
      value: (value, statement) => {
        const result = new Result(statement, script.statements[statement]?.text ?? '', null);
        result.value = value;
        if (Array.isArray(value)) result.rows = value;
        outcome.push(result);
      },
    });
    this.isRunning = false;
    if (end.type === 'stopped') outcome.error = 'Stopped.';
    else if (end.type === 'error') this.tell(outcome, end, script);
    else if (!outcome.results.length && !outcome.error) outcome.error = noQuery(text);
  }

  // The message of an error, and its place in the text.
  private tell(outcome: Outcome, end: Ended, script: Script): void {
    const said = withHint(end.message ?? '');
    if (end.isSyntax && script.error) {
      outcome.error = script.error.isAtEnd ? `Line ${script.error.line}: The query ends too early.` : `Line ${script.error.line}, column ${script.error.column}: ${said}`;
      outcome.wrong = script.error;
      return;
    }
    const statement = end.statement === undefined ? null : script.statements[end.statement] ?? null;
    const { failed } = outcome;
    outcome.error = said;
    outcome.wrong = (failed && failed.statement === end.statement && said.includes(failed.said) ? script.locate(failed) : null) ?? this.missing(end, script) ?? statement;
  }

  // The place of a method that is none.
  private missing({ message, statement }: Ended, script: Script): { from: number; to: number } | null {
    const method = missingMethod(message ?? '');
    return method === null || statement === undefined ? null : script.locateMethod(statement, method);
  }

  private async query(outcome: Outcome, built: BuiltQuery, script: Script, isPlan: boolean): Promise<{ value: unknown } | { error: string; backtrace: (number | string)[]; isCompile: boolean }> {
    const result = built.isShown ? new Result(built.statement, script.statements[built.statement]?.text ?? built.text, built) : null;
    const began = performance.now();
    let token = 0;
    const remember = (number: number) => { token = number; this.unanswered.add(number); };
    try {
      if (isPlan && result) {
        const plan = await app.connection.query(built.term, { ...built.options, explain: true, profile: true }, remember);
        result.plan = plan.value;
        result.profile = plan.profile;
        result.milliseconds = performance.now() - began;
        outcome.push(result);
        return { value: plan.value };
      }
      const live = this.isLive && built.isShown;
      const cursor = live ? await this.follow(built, result!, remember) : await app.connection.query(built.term, built.options, remember);
      if (!result) return { value: await whole(cursor) };
      result.isLive = live;
      result.milliseconds = performance.now() - began;
      result.begin(cursor);
      outcome.push(result);
      return { value: cursor.isStream ? result.rows : cursor.value };
    } catch (error) {
      if (error instanceof QueryError) return this.refused(outcome, built, error);
      return { error: message(error), backtrace: [], isCompile: false };
    } finally {
      this.unanswered.delete(token);
    }
  }

  // Notes a query that the server refused. That of a feed is a part of the one that was sent.
  private refused(outcome: Outcome, built: BuiltQuery, error: QueryError): { error: string; backtrace: (number | string)[]; isCompile: boolean } {
    const isLive = this.isLive && built.isShown;
    const backtrace = isLive && error.backtrace[0] === 0 ? error.backtrace.slice(1) : error.backtrace;
    const said = isLive && error.kind === 'runtime' && error.backtrace.length < 2 ? `${error.message.replace(/\.$/, '')}; without Live the query runs once.` : error.message;
    outcome.failed = { ...built, backtrace, said: said.split('\n')[0]!.replace(/\.$/, '') };
    return { error: said, backtrace, isCompile: error.kind === 'syntax' };
  }

  // The feed of a query. Only one of the first rows of an order has the places of rows.
  private async follow(built: BuiltQuery, result: Result, remember: (token: number) => void): Promise<Cursor> {
    const open = (offsets: Record<string, Wire>) => app.connection.query([CHANGES, [built.term], { include_initial: true, ...offsets }], built.options, remember);
    if (!hasTerm(built.term, LIMIT)) return open({});
    try {
      const cursor = await open({ include_offsets: true });
      result.isOrdered = true;
      return cursor;
    } catch (error) {
      if (!(error instanceof QueryError) || !error.message.includes('Cannot include offsets')) throw error;
      return open({});
    }
  }

  stop(): void {
    if (this.isRunning) this.sandbox?.stop();
    this.unanswered.forEach((token) => app.connection.cancel(token));
    this.unanswered.clear();
    this.running?.stop();
  }
}

/** All elements, for a script that awaits them. */
async function whole(cursor: Cursor): Promise<unknown> {
  if (!cursor.isStream) return cursor.value;
  if (cursor.isFeed) { cursor.stop(); throw new Error('A changefeed has no end: leave out `await` to follow it.'); }
  const rows = cursor.take();
  while (!cursor.isDone) {
    if (rows.length > ROWS_MAX) { cursor.stop(); throw new Error(`A script may await ${ROWS_MAX} rows; use limit.`); }
    rows.push(...(await cursor.more()));
  }
  return rows;
}

/** Whether a query, or the query of which it is a step, is such a term. */
function hasTerm(term: Wire, wanted: number): boolean {
  return Array.isArray(term) && (term[0] === wanted || (term[1].length > 0 && hasTerm(term[1][0]!, wanted)));
}

function parse<T>(text: string | null): T | null {
  try { return text ? (JSON.parse(text) as T) : null; } catch { return null; }
}

export const explorer = new Explorer();

// The explorer's tabs, results and history. They stay while other pages are open; texts and history are kept by the browser.
import { app, read, write } from '../lib/app.svelte';
import { QueryError, type Cursor } from '../lib/wire';
import type { Wire } from '../lib/terms';
import { Sandbox, type BuiltQuery } from './sandbox';
import type { SavedQuery } from './saved.svelte';
import type { Script } from './editor';

/** Rows of a result that the page keeps; beyond these it offers the download. */
const ROWS_MAX = 50_000;
const BYTES_MAX = 64 << 20;
const FEED_ROWS_MAX = 1000;
const HISTORY_MAX = 1000;
/** Rows after which a result waits until it is scrolled. */
const BATCH_ROWS = 1000;
const CHANGES = 152;

/** `saved`: the saved query that it shows, as it was read. */
export interface Tab { id: number; text: string; saved?: SavedQuery }
export interface Past { at: number; text: string }
export type View = 'tree' | 'table' | 'raw' | 'chart';

/** The result of one statement. */
export class Result {
  rows = $state.raw<unknown[]>([]);
  value = $state.raw<unknown>(undefined);
  isStream = $state(false);
  isFeed = $state(false);
  isLive = $state(false);
  isDone = $state(true);
  isFull = $state(false);
  isPaused = $state(false);
  /** Changes that came while the result is paused, and changes ever. */
  missed = $state(0);
  changes = $state(0);
  discarded = $state(0);
  error = $state('');
  plan = $state.raw<unknown>(undefined);
  milliseconds = $state(0);
  cursor: Cursor | null = null;
  private isReading = false;
  private bytes = 0;

  constructor(readonly statement: number, readonly text: string, readonly query: BuiltQuery | null) {}

  /** Takes a whole value, or the beginning of a stream. */
  begin(cursor: Cursor): void {
    this.cursor = cursor;
    this.isStream = cursor.isStream;
    this.isFeed = cursor.isFeed;
    this.isDone = cursor.isDone;
    if (!cursor.isStream) {
      this.value = ungrouped(cursor.value);
      if (Array.isArray(this.value)) this.rows = this.value;
    } else this.rows = cursor.take();
    if (this.isFeed) this.follow();
  }

  /** Reads further rows of a stream. */
  async more(): Promise<void> {
    if (!this.cursor || this.isDone || this.isFeed || this.isReading) return;
    if (this.rows.length >= ROWS_MAX || this.bytes > BYTES_MAX) { this.isFull = true; return; }
    this.isReading = true;
    try {
      const before = app.connection.received;
      const next: unknown[] = [];
      while (next.length < BATCH_ROWS && !this.cursor.isDone) next.push(...(await this.cursor.more()));
      this.bytes += app.connection.received - before;
      this.rows = this.rows.concat(next);
      this.isDone = this.cursor.isDone;
    } catch (error) {
      this.error = message(error);
    } finally {
      this.isReading = false;
    }
  }

  /** Follows a changefeed; a live result has its changes applied. */
  private async follow(): Promise<void> {
    let shown: unknown[] = [];
    let kept: unknown[] = this.isLive ? [] : this.rows;
    let isDue = false;
    const publish = () => {
      isDue = false;
      if (this.isPaused) return;
      shown = kept;
      this.rows = [...shown];
      this.missed = 0;
    };
    const take = (changes: unknown[]) => {
      this.changes += changes.length;
      if (this.isPaused) this.missed += changes.length;
      if (this.isLive) for (const change of changes) apply(kept, change as Change);
      else {
        kept = kept.concat(changes);
        if (kept.length > FEED_ROWS_MAX) { this.discarded += kept.length - FEED_ROWS_MAX; kept = kept.slice(-FEED_ROWS_MAX); }
      }
      // At most ten times a second, however many changes there are.
      if (!isDue) { isDue = true; setTimeout(publish, 100); }
    };
    this.publish = publish;
    try {
      if (this.isLive) {
        const initial = this.rows;
        this.rows = [];
        take(initial);
      }
      while (this.cursor && !this.cursor.isDone) take(await this.cursor.more());
      this.isDone = true;
    } catch (error) {
      this.isDone = true;
      if (!this.wasStopped) this.error = message(error);
    }
  }
  private publish: () => void = () => {};
  private wasStopped = false;

  pause(isPaused: boolean): void {
    this.isPaused = isPaused;
    if (!isPaused) this.publish();
  }

  stop(): void {
    this.wasStopped = true;
    this.cursor?.stop();
    this.isDone = true;
  }
}

/** A grouped result as drivers show it. */
function ungrouped(value: unknown): unknown {
  const grouped = value as { $reql_type$?: string; data?: [unknown, unknown][] } | null;
  if (typeof grouped !== 'object' || grouped?.$reql_type$ !== 'GROUPED_DATA') return value;
  return (grouped.data ?? []).map(([group, reduction]) => ({ group, reduction }));
}

interface Change { old_val?: unknown; new_val?: unknown; error?: string }

function apply(rows: unknown[], change: Change): void {
  const at = change.old_val == null ? -1 : find(rows, change.old_val);
  if (change.new_val != null) at < 0 ? rows.push(change.new_val) : rows.splice(at, 1, change.new_val);
  else if (at >= 0) rows.splice(at, 1);
  if (rows.length > FEED_ROWS_MAX) rows.shift();
}

function find(rows: unknown[], wanted: unknown): number {
  const text = JSON.stringify(wanted);
  return rows.findIndex((row) => JSON.stringify(row) === text);
}

const message = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** What the last run of a tab has given. */
class Outcome {
  results = $state.raw<Result[]>([]);
  shown = $state(0);
  error = $state('');
  /** The part of the text that is wrong, and the text that was run. */
  wrong = $state.raw<{ from: number; to: number } | null>(null);
  text = '';

  begin(text: string): void {
    this.stop();
    this.results = [];
    this.shown = 0;
    this.error = '';
    this.wrong = null;
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

  remove(id: number): void {
    if (this.tabs.length === 1) { this.set(''); return; }
    this.tabs = this.tabs.filter((tab) => tab.id !== id);
    if (this.current === id) this.current = this.tabs.at(-1)!.id;
    this.outcomes.get(id)?.stop();
    this.outcomes.delete(id);
    this.keep();
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
    const end = await this.prepare().run(script.code, {
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
    else if (end.type === 'error') {
      outcome.error = end.message ?? '';
      outcome.wrong = (end.isSyntax ? script.error : null) ?? script.statements[end.statement ?? 0] ?? null;
    } else if (!outcome.results.length && !outcome.error) outcome.error = 'The script makes no query. A query is an expression that begins with r, such as r.dbList().';
  }

  private async query(outcome: Outcome, built: BuiltQuery, script: Script, isPlan: boolean): Promise<{ value: unknown } | { error: string; backtrace: (number | string)[]; isCompile: boolean }> {
    const result = built.isShown ? new Result(built.statement, script.statements[built.statement]?.text ?? built.text, built) : null;
    const began = performance.now();
    let token = 0;
    const remember = (number: number) => { token = number; this.unanswered.add(number); };
    try {
      if (isPlan && result) {
        const plan = await app.connection.query(built.term, { ...built.options, explain: true }, remember);
        result.plan = plan.value;
        result.milliseconds = performance.now() - began;
        outcome.push(result);
        return { value: plan.value };
      }
      const live = this.isLive && built.isShown;
      const term: Wire = live ? [CHANGES, [built.term], { include_initial: true }] : built.term;
      const cursor = await app.connection.query(term, built.options, remember);
      if (!result) return { value: await whole(cursor) };
      result.isLive = live;
      result.milliseconds = performance.now() - began;
      result.begin(cursor);
      outcome.push(result);
      return { value: cursor.isStream ? result.rows : cursor.value };
    } catch (error) {
      if (error instanceof QueryError) return { error: error.message, backtrace: error.backtrace, isCompile: error.kind === 'syntax' };
      return { error: message(error), backtrace: [], isCompile: false };
    } finally {
      this.unanswered.delete(token);
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

function parse<T>(text: string | null): T | null {
  try { return text ? (JSON.parse(text) as T) : null; } catch { return null; }
}

export const explorer = new Explorer();

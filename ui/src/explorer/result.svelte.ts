// The result of one statement: a value, a stream that is read as one scrolls, or a feed that is followed.
import { app } from '../lib/app.svelte';
import type { Cursor } from '../lib/wire';
import { LiveRows, type Change } from './live';
import type { BuiltQuery } from './sandbox';

/** Rows of a result that the page keeps; beyond these it offers the download. */
export const ROWS_MAX = 50_000;
const BYTES_MAX = 64 << 20;
const FEED_ROWS_MAX = 1000;
/** Rows after which a result waits until it is scrolled. */
const BATCH_ROWS = 1000;
/** At most ten times a second the page shows changes, however many there are. */
const PUBLISH_MS = 100;

/** The result of one statement. */
export class Result {
  rows = $state.raw<unknown[]>([]);
  value = $state.raw<unknown>(undefined);
  isStream = $state(false);
  isFeed = $state(false);
  isLive = $state(false);
  /** Whether a live result has the places of its rows. */
  isOrdered = false;
  isDone = $state(true);
  isFull = $state(false);
  isPaused = $state(false);
  /** Changes that came while the result is paused, and changes ever. */
  missed = $state(0);
  changes = $state(0);
  discarded = $state(0);
  /** The rows of a live result, also those that are not kept. */
  total = $state(0);
  error = $state('');
  plan = $state.raw<unknown>(undefined);
  profile: unknown = undefined;
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
    const live = this.isLive ? new LiveRows(FEED_ROWS_MAX, this.isOrdered) : null;
    let kept: unknown[] = live ? [] : this.rows;
    let isDue = false;
    const publish = () => {
      isDue = false;
      if (this.isPaused) return;
      this.rows = live ? live.rows : [...kept];
      this.total = live?.total ?? 0;
      this.missed = 0;
      if (live?.error) this.error = live.error;
    };
    const take = (changes: unknown[]) => {
      this.changes += changes.length;
      if (this.isPaused) this.missed += changes.length;
      if (live) for (const change of changes) live.apply(change as Change);
      else {
        kept = kept.concat(changes);
        if (kept.length > FEED_ROWS_MAX) { this.discarded += kept.length - FEED_ROWS_MAX; kept = kept.slice(-FEED_ROWS_MAX); }
      }
      if (!isDue) { isDue = true; setTimeout(publish, PUBLISH_MS); }
    };
    this.publish = publish;
    try {
      if (live) {
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

export const message = (error: unknown) => (error instanceof Error ? error.message : String(error));

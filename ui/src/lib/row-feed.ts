// Follows the rows of a table while they are shown.
import { app } from './app.svelte';
import type { Row } from './edit';
import type { Term } from './terms';
import type { Cursor } from './wire';

export interface RowChange { old_val?: Row | null; new_val?: Row | null; error?: string }

/** Changes of the same row within this time come as one. */
const SQUASH_SEC = 0.3;

/** One feed at a time. `take` gets the changes; a feed that fails ends without a word, because the rows can be read again. */
export class RowFeed {
  private cursor: Cursor | null = null;
  private opened = 0;

  constructor(private take: (changes: RowChange[]) => void) {}

  /** Follows other rows from now on. Over plain requests there is no feed: it would hold one of the browser's few connections. */
  async open(rows: Term): Promise<void> {
    this.close();
    const mine = this.opened;
    if (app.connection.isSlow) return;
    try {
      const cursor = await app.connection.query(rows.changes({ squash: SQUASH_SEC }).wire);
      if (mine !== this.opened) return cursor.stop();
      this.cursor = cursor;
      while (!cursor.isDone) {
        const changes = (await cursor.more()) as RowChange[];
        if (mine !== this.opened) return;
        if (changes.length) this.take(changes);
      }
    } catch {
      if (mine === this.opened) this.cursor = null;
    }
  }

  close(): void {
    this.opened += 1;
    this.cursor?.stop();
    this.cursor = null;
  }
}

// Queries that users keep on the server, for themselves or for all.
import { app } from '../lib/app.svelte';
import { succeeded, type Written } from '../lib/questions';
import { branch, error, object, system, type Json } from '../lib/terms';

export interface SavedQuery { id: string; name: string; query: string; owner: string; is_shared: boolean; changed: { epoch_time: number } }

const CONFLICT = 'rekindle: the saved query has changed';
const table = () => system('_saved_queries');

/** Another session has changed or deleted the query that was to be stored. */
export class SavedConflict extends Error {
  constructor(readonly theirs: SavedQuery | null) {
    super(theirs ? 'The saved query was changed meanwhile.' : 'The saved query was deleted meanwhile.');
  }
}

class SavedQueries {
  list = $state.raw<SavedQuery[] | undefined>(undefined);
  error = $state('');

  async read(): Promise<void> {
    try {
      const rows = await app.run<SavedQuery[]>(table());
      this.list = rows.sort((a, b) => a.name.localeCompare(b.name));
      this.error = '';
    } catch (failure) {
      this.error = failure instanceof Error ? failure.message : String(failure);
    }
  }

  isMine(query: SavedQuery): boolean { return query.owner === app.session?.user; }
  mayChange(query: SavedQuery): boolean { return this.isMine(query) || (app.session?.user === 'admin' && query.is_shared); }

  async get(id: string): Promise<SavedQuery | null> { return app.run<SavedQuery | null>(table().get(id)); }

  async create(name: string, query: string, isShared: boolean): Promise<SavedQuery> {
    const written = succeeded(await app.run<Written>(table().insert(object({ name, query, is_shared: isShared }), { return_changes: true })));
    await this.read();
    return written.changes![0]!.new_val as SavedQuery;
  }

  /** Stores a change of a query that is `base` as displayed. Fails with [`SavedConflict`] if it is another one by now. */
  async change(base: SavedQuery, change: Partial<Pick<SavedQuery, 'name' | 'query' | 'is_shared'>>): Promise<SavedQuery> {
    const same = (['name', 'query', 'is_shared'] as const).map((field) => [field, base[field]] as const);
    const row = table().get(base.id);
    const written = await app.run<Written>(row.update((stored) => branch(stored.pluck('name', 'query', 'is_shared').eq(object(Object.fromEntries(same))), object(change as Record<string, Json>), error(CONFLICT)), { return_changes: 'always' }));
    await this.settle(base.id, written);
    return (written.changes?.[0]?.new_val as SavedQuery | undefined) ?? { ...base, ...change };
  }

  async remove(base: SavedQuery): Promise<void> {
    await this.settle(base.id, await app.run<Written>(table().get(base.id).delete()), true);
  }

  private async settle(id: string, written: Written, isRemoval = false): Promise<void> {
    const isConflict = written.first_error?.includes(CONFLICT) || written.first_error?.includes('was changed or deleted meanwhile');
    const theirs = isConflict ? await this.get(id) : null;
    await this.read();
    if (isConflict || (written.skipped && !isRemoval)) throw new SavedConflict(theirs);
    succeeded(written);
  }
}

export const saved = new SavedQueries();

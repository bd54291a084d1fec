// The rows of a live result: the rows of a query at first, and then its changes applied to them.

/** An element of a changefeed. Offsets are there in a feed of the first rows of an order, groups in a grouped one. */
export interface Change { old_val?: unknown; new_val?: unknown; group?: unknown; old_offset?: number | null; new_offset?: number | null; error?: string }

interface Slot { value: unknown; text: string }

/** Keeps the last `most` rows of a set, or all rows of an order. */
export class LiveRows {
  /** The rows in the order of offsets. */
  private ordered: unknown[] | null = null;
  /** Rows without an order: the oldest first. */
  private slots = new Set<Slot>();
  private byText = new Map<string, Slot[]>();
  /** The number of rows that the query has, also those that are not kept. */
  total = 0;
  /** What the server says about changes that are missing. */
  error = '';

  constructor(private most: number, isOrdered: boolean) {
    if (isOrdered) this.ordered = [];
  }

  get rows(): unknown[] { return this.ordered ? [...this.ordered] : [...this.slots].map((slot) => slot.value); }

  apply(change: Change): void {
    if (change.error !== undefined) { this.error = change.error; return; }
    const before = change.old_val ?? undefined, after = change.new_val ?? undefined;
    if (this.ordered) this.move(this.ordered, change, after);
    else {
      this.replace(grouped(change, before), grouped(change, after));
      this.total += (after === undefined ? 0 : 1) - (before === undefined ? 0 : 1);
    }
  }

  // The server names the places. Rows of the beginning come in order.
  private move(rows: unknown[], { old_offset, new_offset }: Change, after: unknown): void {
    if (typeof old_offset === 'number') rows.splice(old_offset, 1);
    if (after !== undefined) rows.splice(new_offset ?? rows.length, 0, after);
    this.total = rows.length;
  }

  // A changed row keeps its place.
  private replace(before: unknown, after: unknown): void {
    const slot = before === undefined ? undefined : this.take(JSON.stringify(before));
    if (after === undefined) { if (slot) this.slots.delete(slot); return; }
    const next = slot ?? { value: after, text: '' };
    next.value = after;
    next.text = JSON.stringify(after);
    this.slots.add(next);
    this.named(next.text).push(next);
    if (this.slots.size > this.most) this.drop();
  }

  private named(text: string): Slot[] {
    const found = this.byText.get(text) ?? [];
    this.byText.set(text, found);
    return found;
  }

  private take(text: string): Slot | undefined {
    const found = this.byText.get(text);
    const slot = found?.shift();
    if (found?.length === 0) this.byText.delete(text);
    return slot;
  }

  private drop(): void {
    const [oldest] = this.slots;
    if (!oldest) return;
    this.slots.delete(oldest);
    const others = this.named(oldest.text).filter((slot) => slot !== oldest);
    if (others.length) this.byText.set(oldest.text, others);
    else this.byText.delete(oldest.text);
  }
}

const grouped = (change: Change, value: unknown) => (value === undefined || !('group' in change) ? value : { group: change.group, reduction: value });

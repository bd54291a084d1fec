// The address of a page: `#/tables/shop/orders?index=born`. RethinkDB's old addresses lead to theirs.

const OLD: Record<string, string> = { '': '/', dashboard: '/', tables: '/tables', servers: '/servers', dataexplorer: '/explorer', logs: '/logs' };

class Route {
  parts = $state.raw<string[]>([]);
  query = $state.raw(new URLSearchParams());
  /** How often the address has changed from outside of the page: by a link, the back button, or typed. */
  visits = $state(0);

  constructor() {
    addEventListener('hashchange', () => { this.read(); this.visits += 1; });
    this.read();
  }

  get page(): string { return this.parts[0] ?? ''; }

  private read(): void {
    const hash = location.hash.replace(/^#/, '');
    if (!hash.startsWith('/')) {
      const [first = '', id] = hash.split('/');
      const page = OLD[first];
      // Their tables and servers are named by ids.
      history.replaceState(null, '', `#${page === undefined ? '/' : id && page !== '/' ? `${page}?id=${id}` : page}`);
      return this.read();
    }
    const [path = '', query = ''] = split(hash);
    this.parts = path.split('/').slice(1).filter((part) => part !== '').map(decode);
    this.query = new URLSearchParams(query);
  }

  /** Changes the part after `?` without a new entry in the history. */
  set(values: Record<string, string | null>): void {
    const query = new URLSearchParams(this.query);
    for (const [name, value] of Object.entries(values)) value === null || value === '' ? query.delete(name) : query.set(name, value);
    const text = query.toString();
    history.replaceState(null, '', address(this.parts) + (text ? `?${text}` : ''));
    this.query = query;
  }
}

function split(hash: string): [string, string] {
  const at = hash.indexOf('?');
  return at < 0 ? [hash, ''] : [hash.slice(0, at), hash.slice(at + 1)];
}

function decode(part: string): string {
  try { return decodeURIComponent(part); } catch { return part; }
}

/** The address of a page. */
export function address(parts: string[]): string {
  return `#/${parts.map((part) => encodeURIComponent(part)).join('/')}`;
}

export const route = new Route();
export const go = (...parts: string[]) => { location.hash = address(parts).slice(1); };

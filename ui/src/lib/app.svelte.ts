// What all pages share: the session, the connection, messages to the user.
import { login, logout, openSession, sessionInfo, type SessionInfo } from './login';
import { Connection, QueryError, type Cursor, type State } from './wire';
import type { Term, Wire } from './terms';

/** How often a page asks again. */
const POLL_MS = 2000;

/** What a message offers to do. */
export interface Action { label: string; run: () => void }
interface Toast { id: number; text: string; kind: 'good' | 'bad'; action?: Action; since: number }

/** A message that leads to another page is seen there; older ones belong to the page before. */
const TOAST_KEPT_MS = 500;

class App {
  session = $state<SessionInfo | null>(null);
  /** What the page waits for: the server, a login, or nothing. */
  stage = $state<'starting' | 'login' | 'ready'>('starting');
  wire = $state<State>('connecting');
  isSlow = $state(false);
  /** Whether the files in the server are newer than this page. */
  isOutdated = $state(false);
  toasts = $state<Toast[]>([]);
  theme = $state<'light' | 'dark'>('light');
  paletteIsOpen = $state(false);
  readonly connection = new Connection();
  /** Who was logged in last in this page. What is in its memory belongs to them. */
  user: string | null = null;
  private toastId = 0;

  constructor() {
    this.connection.onState = (state) => {
      this.wire = state;
      this.isSlow = this.connection.isSlow;
      // The server may be another one now, or the session may be over.
      if (state === 'open' || state === 'ended') this.refresh().catch(() => {});
      if (state === 'lost') setTimeout(() => this.checkSession(), 300);
    };
    addEventListener('hashchange', () => { this.toasts = this.toasts.filter((toast) => Date.now() - toast.since < TOAST_KEPT_MS); });
    const stored = read('theme');
    const dark = stored ? stored === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    this.setTheme(dark ? 'dark' : 'light', false);
  }

  setTheme(theme: 'light' | 'dark', store = true): void {
    this.theme = theme;
    document.documentElement.dataset.theme = theme;
    if (store) write('theme', theme);
  }

  /** Asks who is logged in, until the server answers. */
  async start(): Promise<void> {
    for (;;) {
      const info = await sessionInfo().catch(() => null);
      if (info) {
        if (!this.take(info)) return;
        if (!info.user && info.open) await openSession().then(() => this.refresh()).catch(() => {});
        if (this.session?.user) this.enter();
        else this.stage = 'login';
        return;
      }
      await new Promise((resolve) => setTimeout(resolve, 700));
    }
  }

  /** False if somebody else has logged in: then the page is loaded again, without what it has of the user before. */
  private take(info: SessionInfo): boolean {
    if (info.user && this.user !== null && info.user !== this.user) {
      this.connection.close();
      this.session = null;
      this.stage = 'login';
      location.hash = '';
      location.reload();
      return false;
    }
    this.user = info.user ?? this.user;
    if (this.session && this.session.files !== info.files) this.isOutdated = true;
    this.session = info;
    return true;
  }

  private async refresh(): Promise<void> {
    const info = await sessionInfo();
    if (!info || !this.take(info)) return;
    if (info.user) {
      if (this.wire === 'ended') this.connection.open();
    } else if (info.open && (this.user === null || this.user === 'admin')) {
      // Nobody else becomes admin when their session ends.
      await openSession();
      const opened = await sessionInfo();
      if (opened && !this.take(opened)) return;
      if (this.wire === 'ended') this.connection.open();
    } else this.stage = 'login';
  }

  private async checkSession(): Promise<void> {
    const info = await sessionInfo().catch(() => null);
    if (info && !info.user) await this.refresh().catch(() => {});
  }

  private enter(): void {
    this.stage = 'ready';
    this.connection.open();
  }

  async login(user: string, password: string): Promise<void> {
    await login(user, password);
    const info = await sessionInfo();
    if (info && !this.take(info)) return;
    this.enter();
  }

  async logout(): Promise<void> {
    await logout().catch(() => {});
    this.connection.close();
    this.session = null;
    this.stage = 'login';
    location.hash = '';
  }

  run<T = unknown>(term: Term, options: Record<string, Wire> = {}): Promise<T> {
    return this.connection.run<T>(term, options);
  }

  say(text: string, kind: 'good' | 'bad' = 'good', action?: Action): void {
    const id = ++this.toastId;
    this.toasts.push({ id, text, kind, action, since: Date.now() });
    setTimeout(() => this.unsay(id), action ? 12_000 : kind === 'bad' ? 8000 : 4000);
  }

  unsay(id: number): void { this.toasts = this.toasts.filter((toast) => toast.id !== id); }
}

export const app = new App();

/** Reads from the browser's storage, which may be forbidden. */
export function read(key: string): string | null {
  try { return localStorage.getItem(`rekindle.${key}`); } catch { return null; }
}

/** Writes to the browser's storage; false if it is full or forbidden. */
export function write(key: string, value: string): boolean {
  try { localStorage.setItem(`rekindle.${key}`, value); return true; } catch { return false; }
}

/** How much seldomer a page asks while feeds tell it of changes. */
const WATCHED_FACTOR = 10;
/** Changes that come together lead to one question. */
const GATHER_MS = 200;

/** The answer to a question. It is asked again when the feeds of `watched` have changes, and every few seconds; never while the page is hidden. */
export class Live<T> {
  value = $state.raw<T | undefined>(undefined);
  error = $state<QueryError | null>(null);
  private timer = 0;
  private gathering = 0;
  private isOver = false;
  private feeds: Cursor[] = [];
  private isWatching = false;
  private mayWatch = true;
  private asked = 0;

  constructor(private ask: () => Promise<T>, private every = POLL_MS, private watched: Term[] = []) {
    $effect(() => {
      this.isOver = false;
      this.loop();
      const seen = () => { if (document.hidden) this.unwatch(); else this.again(); };
      document.addEventListener('visibilitychange', seen);
      return () => {
        this.isOver = true;
        this.unwatch();
        clearTimeout(this.timer);
        clearTimeout(this.gathering);
        document.removeEventListener('visibilitychange', seen);
      };
    });
  }

  /** Asks at once. */
  async again(): Promise<void> {
    clearTimeout(this.timer);
    await this.loop();
  }

  private async loop(): Promise<void> {
    const mine = ++this.asked;
    if (!document.hidden && app.connection.state === 'open') {
      // Before the question, so that no change is missed between the two.
      this.watch();
      try {
        const value = await this.ask();
        if (this.isOver || mine !== this.asked) return;
        this.value = value;
        this.error = null;
      } catch (error) {
        // While the connection is lost, the last answer stays.
        if (!(error instanceof QueryError) || error.kind !== 'lost') this.error = error instanceof QueryError ? error : new QueryError(String(error), 'runtime');
      }
    }
    if (this.isOver || mine !== this.asked) return;
    clearTimeout(this.timer);
    const wait = app.connection.state !== 'open' ? 250 : this.feeds.length ? this.every * WATCHED_FACTOR : this.every;
    this.timer = setTimeout(() => this.loop(), wait) as unknown as number;
  }

  // Follows the feeds until one of them ends. Over plain requests, each would hold one of the browser's few connections.
  private async watch(): Promise<void> {
    if (this.isWatching || !this.mayWatch || this.watched.length === 0 || app.connection.isSlow) return;
    this.isWatching = true;
    const opened: Cursor[] = [];
    try {
      await Promise.all(this.watched.map(async (term) => { opened.push(await app.connection.query(term.changes().wire)); }));
      if (this.isOver || document.hidden) return;
      this.feeds = opened;
      await Promise.race(opened.map((feed) => this.follow(feed)));
    } catch (error) {
      // Without the right to read a table there is no feed of it.
      this.mayWatch = error instanceof QueryError && error.kind === 'lost';
    } finally {
      opened.forEach((feed) => feed.stop());
      this.feeds = [];
      this.isWatching = false;
    }
  }

  private async follow(feed: Cursor): Promise<void> {
    while (!feed.isDone) {
      const changes = await feed.more();
      if (changes.length === 0 || this.gathering || this.isOver) continue;
      this.gathering = setTimeout(() => { this.gathering = 0; if (!this.isOver) this.again(); }, GATHER_MS) as unknown as number;
    }
  }

  private unwatch(): void { this.feeds.forEach((feed) => feed.stop()); }
}

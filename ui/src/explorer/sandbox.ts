// Runs scripts in the sandbox: what comes out of it are built terms.
import type { Wire } from '../lib/terms';

export interface BuiltQuery { id: number; term: Wire; text: string; options: Record<string, Wire>; isShown: boolean; statement: number }
export interface Outcome { type: 'done' | 'error' | 'stopped'; message?: string; isSyntax?: boolean; statement?: number }
export interface Handlers {
  /** Runs a query; its result goes into the script. */
  query: (query: BuiltQuery) => Promise<{ value: unknown } | { error: string; backtrace: (number | string)[]; isCompile: boolean }>;
  value: (value: unknown, statement: number) => void;
}

export class Sandbox {
  private frame: HTMLIFrameElement;
  private port: MessagePort | null = null;
  private ready: Promise<void>;
  private becomeReady: () => void = () => {};
  private finish: ((outcome: Outcome) => void) | null = null;
  private handlers: Handlers | null = null;
  private run_ = 0;

  constructor() {
    this.ready = new Promise((resolve) => { this.becomeReady = resolve; });
    this.frame = document.createElement('iframe');
    this.frame.hidden = true;
    this.frame.title = 'Scripts';
    this.frame.setAttribute('sandbox', 'allow-scripts');
    this.frame.src = './sandbox.html';
    this.frame.onload = () => {
      const channel = new MessageChannel();
      this.port = channel.port1;
      channel.port1.onmessage = ({ data }) => this.receive(data);
      this.frame.contentWindow?.postMessage('port', '*', [channel.port2]);
    };
    document.body.append(this.frame);
  }

  private async receive(data: any): Promise<void> {
    if (data.type === 'ready') this.becomeReady();
    else if (data.type === 'value') this.handlers?.value(data.value, data.statement);
    else if (data.type === 'query') {
      const run = this.run_;
      const outcome = await this.handlers?.query(data as BuiltQuery);
      if (run === this.run_ && outcome) this.port?.postMessage({ type: 'result', id: data.id, ...outcome });
    } else this.end(data as Outcome);
  }

  private end(outcome: Outcome): void {
    const finish = this.finish;
    this.finish = null;
    finish?.(outcome);
  }

  /** Runs a script to its end, or to its first error. `statements` are its parts, to find one that is no JavaScript. */
  async run(code: string, statements: string[], handlers: Handlers): Promise<Outcome> {
    await this.ready;
    this.run_ += 1;
    this.handlers = handlers;
    return new Promise((resolve) => {
      this.finish = resolve;
      this.port!.postMessage({ type: 'run', code, statements });
    });
  }

  /** Ends the script, even one that never ends. */
  stop(): void {
    if (!this.port) return;
    this.run_ += 1;
    this.ready = new Promise((resolve) => { this.becomeReady = resolve; });
    this.port.postMessage({ type: 'stop' });
    this.end({ type: 'stopped' });
  }

  close(): void {
    this.frame.remove();
    this.end({ type: 'stopped' });
  }
}

// Write hooks as they are typed: a function in JavaScript, or the binary that `get_write_hook` gives.
import { Sandbox } from '../explorer/sandbox';
import { pseudo } from './format';
import { datum, Term, type Json, type Wire } from './terms';

/** `isBinary`: it can be stored and not be called. */
export interface Hook { term: Term; isBinary: boolean }

const TERM_SET_HOOK = 189, TERM_CALL = 64, TERM_NOW = 103;

/** The function in the text that the server prints of a hook. */
export const printed = (query: string) => query.replace(/^setWriteHook\(/, '').replace(/\)\s*$/, '');

/** Reads a hook; fails with what is wrong in the text. A script runs in the sandbox, where only terms come out. */
export async function parseHook(text: string): Promise<Hook> {
  const json = parsed(text);
  if (json !== undefined) {
    if (pseudo(json) !== 'BINARY') throw new Error('This is JSON, and neither a function nor the binary of a write hook.');
    return { term: datum(json), isBinary: true };
  }
  const sandbox = new Sandbox();
  const timer = setTimeout(() => sandbox.stop(), 3000);
  let built: Wire | undefined;
  try {
    const code = `await r.db('x').table('x').setWriteHook(\n${text.trim().replace(/;$/, '')}\n).run()`;
    const outcome = await sandbox.run(code, [code], {
      query: async ({ term }) => {
        const [number, args] = Array.isArray(term) ? term : [];
        if (number === TERM_SET_HOOK && Array.isArray(args)) built ??= args[1] as Wire;
        return { value: null };
      },
      value: () => {},
    });
    if (outcome.type === 'stopped') throw new Error('The function was not built within three seconds.');
    if (outcome.type === 'error') throw new Error(outcome.message ?? 'The text is no function.');
  } finally {
    clearTimeout(timer);
    sandbox.close();
  }
  if (built === undefined || built === null) throw new Error('The text is no function.');
  return { term: new Term(built), isBinary: false };
}

function parsed(text: string): Json | undefined {
  try { return JSON.parse(text) as Json; } catch { return undefined; }
}

/** The query that gives what a hook makes of a write; nothing is written. */
export function call(hook: Hook, key: Json, before: Json, after: Json): Term {
  const context = { primary_key: key, timestamp: Term.call(TERM_NOW, []) };
  return Term.call(TERM_CALL, [hook.term, context, datum(before), datum(after)]);
}

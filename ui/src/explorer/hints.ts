// What to write instead, for habits from programs that do not work in the explorer.
import TERMS from './terms.json';

const HINTS: [RegExp, string][] = [
  [/^(conn|connection|c|connect) is not defined/, 'The page has a connection of its own: write .run() without one, or leave it out.'],
  [/\br\.connect is not a function/, 'The page is connected already: begin with the query.'],
  [/\.(toArray|each|eachAsync|next|close) is not a function/, 'An awaited query gives all of its rows as an array: use it as it is, or go over it with for (const row of rows).'],
  [/^require is not defined/, 'r is there already; nothing else can be loaded.'],
  [/await is only valid in async/, 'Mark the function as async: async (id) => { await r.table(\'t\').get(id).run() }.'],
  [/^(err|callback|cb) is not defined/, 'No callback is needed: the result of a query is shown, and await gives it to the script.'],
];
const LOOP = /\b(for|while)\s*\(|\.(forEach|map)\(/;

const TYPING_ERRORS_MAX = 2;

/** The name of the method that a message says is none; null for other messages. */
export const missingMethod = (message: string) => /\.(\w+) is not a function$/.exec(message)?.[1] ?? null;

/** The term whose name is nearest to one that is none; null if none is near. */
export function nearest(name: string): string | null {
  const most = Math.min(TYPING_ERRORS_MAX, Math.floor(name.length / 2));
  const found = TERMS.map(([term]) => ({ term: term!, distance: distance(name.toLowerCase(), term!.toLowerCase()) })).filter((one) => one.distance <= most);
  return found.sort((a, b) => a.distance - b.distance)[0]?.term ?? null;
}

// How many letters are to be added, left out, replaced, or exchanged with the next one.
function distance(a: string, b: string): number {
  const rows = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i], above = rows[i - 1]!;
    for (let j = 1; j <= b.length; j++) {
      let least = Math.min(above[j]! + 1, row[j - 1]! + 1, above[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) least = Math.min(least, rows[i - 2]![j - 2]! + 1);
      row.push(least);
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}

/** An error's message, with a sentence about what to write instead. */
export function withHint(message: string): string {
  const hint = HINTS.find(([pattern]) => pattern.test(message))?.[1];
  if (hint) return `${message}\n${hint}`;
  const name = missingMethod(message);
  const term = name === null || TERMS.some(([one]) => one === name) ? null : nearest(name);
  return term ? `There is no \`${name}\`. Do you mean \`${term}\`?` : message;
}

/** What to say about a script that ran no query. */
export function noQuery(code: string): string {
  const said = 'The script makes no query. A query is an expression that begins with r, such as r.dbList().';
  return LOOP.test(code) && /\br\./.test(code) ? `${said}\nInside of a loop or a function a query runs when it is awaited: for (const id of [1, 2]) { await r.table('t').get(id).delete().run() }.` : said;
}

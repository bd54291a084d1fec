// What to write instead, for habits from programs that do not work in the explorer.

const HINTS: [RegExp, string][] = [
  [/^(conn|connection|c|connect) is not defined/, 'The page has a connection of its own: write .run() without one, or leave it out.'],
  [/\br\.connect is not a function/, 'The page is connected already: begin with the query.'],
  [/\.(toArray|each|eachAsync|next|close) is not a function/, 'An awaited query gives all of its rows as an array: use it as it is, or go over it with for (const row of rows).'],
  [/^require is not defined/, 'r is there already; nothing else can be loaded.'],
  [/await is only valid in async/, 'Mark the function as async: async (id) => { await r.table(\'t\').get(id).run() }.'],
  [/^(err|callback|cb) is not defined/, 'No callback is needed: the result of a query is shown, and await gives it to the script.'],
];
const LOOP = /\b(for|while)\s*\(|\.(forEach|map)\(/;

/** An error's message, with a sentence about what to write instead. */
export function withHint(message: string): string {
  const hint = HINTS.find(([pattern]) => pattern.test(message))?.[1];
  return hint ? `${message}\n${hint}` : message;
}

/** What to say about a script that ran no query. */
export function noQuery(code: string): string {
  const said = 'The script makes no query. A query is an expression that begins with r, such as r.dbList().';
  return LOOP.test(code) && /\br\./.test(code) ? `${said}\nInside of a loop or a function a query runs when it is awaited: for (const id of [1, 2]) { await r.table('t').get(id).delete().run() }.` : said;
}

// tests/drivers/scenarios.txt: its queries in JavaScript, and the results of a driver as the file writes them.
'use strict';

// The scenarios of the file with their cases: {name, cases: [{query, want, line}]}.
function scenarios(text) {
  const found = [];
  let query = '';
  text.split('\n').forEach((line, index) => {
    const [kind, rest] = [line.slice(0, 3), line.slice(3)];
    if (kind === '== ') found.push({ name: rest, cases: [] });
    else if (kind === 'py ') query = inJavaScript(rest);
    else if (kind === 'js ') query = rest;
    else if (kind === '-> ') found[found.length - 1].cases.push({ query, want: rest, line: index + 1 });
  });
  return found;
}

// Terms are called getAll here, not get_all.
function inJavaScript(query) {
  return query.replace(/\.([a-z]+(?:_[a-z0-9]+)+)\(/g, (term) => term.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase()));
}

// A value as the file writes it.
function plain(value) {
  if (Buffer.isBuffer(value)) return { bytes: value.toString('base64') };
  if (value instanceof Date) return { ms: value.getTime() };
  if (Array.isArray(value)) return Array.from(value, plain);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.keys(value).sort().map((name) => [name, plain(value[name])]));
}

// The result of a query. A connection over HTTP gives values with their profiles, of which `valueOf` takes the values.
async function answer(r, connection, query, valueOf = (given) => given) {
  try {
    const value = valueOf(await r.expr(new Function('r', `return ${query};`)(r)).run(connection, { groupFormat: 'raw' }));
    if (value && value.$reql_type$ === 'GROUPED_DATA') return { groups: plain(value.data) };
    // The driver adds a toArray to arrays.
    if (value && !Array.isArray(value) && typeof value.toArray === 'function') {
      return plain(await value.toArray()).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1));
    }
    return plain(value);
  } catch (error) {
    if (!error.msg) throw error;
    return { error: [error.name, error.msg.split('\n')[0]] };
  }
}

module.exports = { answer, plain, scenarios };

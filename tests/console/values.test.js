// The values of the conformance cases in the page of a table. `REKINDLE_CONSOLE_FULL=1` takes all cases.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const conformance = require('./conformance.js');
const { closeBrowser, done, eventually, open, r, Server } = require('./harness.js');

const isFull = !!process.env.REKINDLE_CONSOLE_FULL;
const skip = conformance.folder() ? false : 'no conformance cases beside the checkout';
// Small, because the browser lays the whole grid out for each cell that is edited.
const ROW_VALUES = 12, PAGE_HEIGHT = 400;
const ARRAY_VALUES = 100;
// What pages may confuse.
const MORE = ['-0.0', '[-0.0,{"a":-0.0}]', '{"__proto__":1,"a":{"__proto__":{"b":2}}}', '5e-324', '"\\u0000\\u202e\\ufeff"', '" 1"', '"null"', '"{}"'];

const rows = r.db('console').table('values');
let server, page, values = [];

before(async () => {
  if (skip) return;
  server = await new Server().start();
  const found = await conformance.values(server, isFull ? [] : ['datum', 'times', 'geo/constructors.yaml', 'json.yaml']);
  await server.run(r.dbCreate('console'));
  await server.run(r.db('console').tableCreate('values'));
  // Groups cannot be stored. Whole numbers, of which there are thousands, come many to an array.
  const isWhole = (value) => /^\d+$/.test(value);
  const wholes = found.filter(isWhole);
  for (let at = 0; at < wholes.length; at += ARRAY_VALUES) values.push(`[${wholes.slice(at, at + ARRAY_VALUES).join()}]`);
  values = [...new Set([...MORE, ...found.filter((value) => !isWhole(value) && !value.includes('GROUPED_DATA')), ...values])];
  await store();
  page = await open(server, '/tables/console/values', { height: PAGE_HEIGHT });
  await page.waitForSelector('.grid td[data-field="v0"]');
});
after(async () => { await closeBrowser(); await server?.remove(); });

const count = () => Math.ceil(values.length / ROW_VALUES);
const rowText = (id) => `{"id":${id},${values.slice(id * ROW_VALUES, (id + 1) * ROW_VALUES).map((value, i) => `"v${i}":${value}`).join()}}`;

async function store() {
  for (let id = 0; id < count(); id++) {
    const written = await server.run(rows.insert(r.json(rowText(id)), { conflict: 'replace' }));
    assert.equal(written.errors, 0, written.first_error);
  }
}

// The stored rows: their fields as the server writes them.
async function stored() {
  const texts = await server.run(rows.orderBy({ index: 'id' }).map((row) => row.keys().map((name) => [name, row(name).toJSON()])));
  return texts.map((fields) => Object.fromEntries(fields));
}

// In the page: for the cells of all rows that `chosen` names, opens the editor, puts `typed` in it, if it is given, and presses Enter.
function editCells({ total, parity, typed }) {
  const grid = document.querySelector('.grid');
  const rest = () => new Promise((resolve) => { const channel = new MessageChannel(); channel.port1.onmessage = resolve; channel.port2.postMessage(0); });
  const until = async (is) => { for (const end = Date.now() + 30_000; !is();) { if (Date.now() > end) throw new Error('it takes too long'); await rest(); } };
  const edit = async (line, name) => {
    const cell = line.querySelector(`td[data-field="${name}"]`);
    if (!cell || (cell.innerText === '' && cell.className.includes('v-null'))) return 0;
    cell.dispatchEvent(new MouseEvent('dblclick', { bubbles: true }));
    await until(() => line.querySelector('td.cell input'));
    const input = line.querySelector('td.cell input');
    if (typed !== undefined) {
      input.value = typed;
      input.dispatchEvent(new Event('input', { bubbles: true }));
    }
    input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    await until(() => { const now = line.querySelector(`td[data-field="${name}"]`); return now && (typed === undefined || now.innerText === JSON.parse(typed)); });
    return 1;
  };
  return (async () => {
    let edited = 0;
    for (let id = 0; id < total; id++) {
      const line = () => grid.querySelector(`tr[aria-rowindex="${id + 2}"]`);
      grid.scrollTop = Math.max(0, id * 31 - 100);
      // Rows that are not read yet come while the grid is at its end.
      await until(line);
      const names = [...line().querySelectorAll('td[data-field^=v]')].map((cell) => cell.dataset.field);
      for (const name of names) if (parity === undefined || Number(name.slice(1)) % 2 === parity) edited += await edit(line(), name);
    }
    return edited;
  })();
}

// In the page: opens each row as JSON and saves it.
async function saveRows(total) {
  const grid = document.querySelector('.grid');
  const until = async (look) => {
    for (const end = Date.now() + 30_000; ;) {
      const found = look();
      if (found) return found;
      if (Date.now() > end) throw new Error('it takes too long');
      await new Promise((resolve) => { setTimeout(resolve, 5); });
    }
  };
  for (let id = 0; id < total; id++) {
    grid.scrollTop = Math.max(0, id * 31 - 100);
    (await until(() => grid.querySelector(`tr[aria-rowindex="${id + 2}"] button[aria-label^="Open "]`))).click();
    const text = await until(() => document.querySelector('[data-name=json]')?.value);
    if (JSON.parse(text).id !== id) throw new Error(`row ${id}: ${text.slice(0, 100)}`);
    document.querySelector('dialog .actions button.primary').click();
    await until(() => !document.querySelector('dialog'));
  }
}

test('values of the conformance cases are shown, opened and saved: nothing changes', { skip }, async () => {
  const first = await stored();
  const edited = await page.evaluate(editCells, { total: count() });
  assert.equal(edited, values.length);
  assert.deepEqual(await stored(), first);
  assert.equal(first.length, count());
  await page.evaluate(saveRows, count());
  assert.deepEqual(await stored(), first);
  if (isFull) console.log(`${values.length} values in ${first.length} rows`);
});

test('a changed value changes alone', { skip }, async () => {
  const first = await stored();
  for (const parity of [0, 1]) {
    await page.evaluate(editCells, { total: count(), parity, typed: '"changed"' });
    const now = await stored();
    first.forEach((fields, id) => {
      for (const [name, text] of Object.entries(fields)) assert.equal(now[id][name], name !== 'id' && Number(name.slice(1)) % 2 === parity ? '"changed"' : text, `${name} of row ${id}`);
      assert.deepEqual(Object.keys(now[id]), Object.keys(fields));
    });
    await store();
    // The page shows the rows as they are stored again.
    await eventually(() => page.evaluate(() => [...document.querySelectorAll('.grid td')].every((cell) => cell.innerText !== 'changed')));
  }
  await done(page);
});

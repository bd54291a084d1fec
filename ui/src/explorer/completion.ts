// What the editor offers while a query is typed: names, fields, and terms; those first that fit what they are called on.
import type { Completion, CompletionContext, CompletionResult } from '@codemirror/autocomplete';

export interface Names { tables: { db: string; name: string }[]; fields: string[]; terms: [name: string, summary: string, page: string][] }

const FITTING: [receiver: RegExp, terms: string][] = [
  [/\br\.$/, 'db table row expr desc asc now range branch dbList dbCreate tableCreate maxval minval uuid args literal point ISO8601 epochTime time json object random error do'],
  [/\.db\([^()]*\)\.$/, 'table tableList tableCreate tableDrop config grant info wait reconfigure rebalance'],
  [/\br\.table\([^()]*\)\.$|\.table\([^()]*\)\.$/, 'get getAll filter between orderBy insert count changes limit pluck update delete indexCreate indexList indexStatus indexDrop map group config status info reconfigure rebalance sync'],
  [/\.get\([^()]*\)\.$/, 'update delete replace default pluck without merge getField hasFields keys values changes'],
  [/\.(getAll|between|filter|orderBy|limit|skip|map|pluck|without|merge|distinct|concatMap|eqJoin|zip|slice|sample|getNearest|getIntersecting)\(.*\)\.$/, 'filter orderBy limit count pluck map group changes distinct merge skip update delete sum avg min max reduce without concatMap eqJoin zip nth isEmpty coerceTo'],
  [/\.group\(.*\)\.$/, 'count sum avg min max map reduce ungroup distinct limit'],
  [/\brow(\([^()]*\))+\.$|\b[a-z_]\w*(\(['"][^()]*['"]\))+\.$/, 'eq ne gt lt ge le add sub mul match contains and or not default typeOf coerceTo count downcase upcase split year month day'],
];
/** The most that a term is lifted: less than a match of the beginning of a name counts. */
const BOOST_MAX = 90;

/** How much each term is lifted after this text. */
export function boosts(before: string): Map<string, number> {
  const line = before.slice(Math.max(0, before.lastIndexOf('\n', before.lastIndexOf('r.')) + 1));
  const found = FITTING.find(([receiver]) => receiver.test(line));
  return new Map((found?.[1].split(' ') ?? []).map((term, i) => [term, Math.max(1, BOOST_MAX - i)]));
}

const PROPERTY = /^[\w$]*$/;
const fieldsOf = (known: Names): Completion[] => known.fields.map((label) => ({ label, type: 'property' }));

export function completer(names: () => Names) {
  return (context: CompletionContext): CompletionResult | null => {
    const word = context.matchBefore(/[\w$]*/)!;
    const before = context.state.sliceDoc(Math.max(0, word.from - 200), word.from);
    const known = names();
    const quote = /\b(db|table|getField|pluck|without|hasFields|orderBy|group|get_field|row|index:\s*)\(?\s*(?:[^()]*,\s*)?(['"])$/.exec(before);
    if (quote) {
      const options: Completion[] = quote[1] === 'db' ? [...new Set(known.tables.map((table) => table.db))].map((label) => ({ label, type: 'namespace' }))
        : quote[1] === 'table' ? tablesOf(known, before) : fieldsOf(known);
      return { from: word.from, options, validFor: PROPERTY };
    }
    if (/[({,]\s*['"]$/.test(before)) return { from: word.from, options: fieldsOf(known), validFor: PROPERTY };
    if (/\.\s*$/.test(before) && before.trimEnd().endsWith('.')) {
      const lifted = boosts(before.trimEnd());
      return { from: word.from, options: known.terms.map(([label, info, page]) => ({ label, info, detail: page, type: 'function', boost: lifted.get(label) ?? 0 })), validFor: PROPERTY };
    }
    if (/\{\s*$|,\s*$/.test(before) && word.from !== word.to) return { from: word.from, options: fieldsOf(known), validFor: PROPERTY };
    if (word.from === word.to && !context.explicit) return null;
    return { from: word.from, options: [{ label: 'r', type: 'variable', info: 'The beginning of each query' }], validFor: /^\w*$/ };
  };
}

function tablesOf(known: Names, before: string): Completion[] {
  const db = /\.db\(\s*['"]([^'"]+)['"]\s*\)\s*\.table\(\s*['"]$/.exec(before)?.[1];
  return known.tables.filter((table) => !db || table.db === db).map((table) => ({ label: table.name, detail: table.db, type: 'class' }));
}

// The rows that fit a condition of one field.
import { parseValue, readings } from './cell';
import { and, branch, datum, maxval, minval, type Term } from './terms';

export type Operator = 'eq' | 'ne' | 'lt' | 'le' | 'gt' | 'ge' | 'contains' | 'exists' | 'missing';
export interface Condition { field: string; operator: Operator; text: string }

export const OPERATORS: [Operator, string][] = [['eq', '='], ['ne', '≠'], ['lt', '<'], ['le', '≤'], ['gt', '>'], ['ge', '≥'], ['contains', 'contains'], ['exists', 'has a value'], ['missing', 'has no value']];
/** Whether a condition compares with a value. */
export const hasValue = (operator: Operator) => operator !== 'exists' && operator !== 'missing';
export const operator = (name: string | null): Operator => OPERATORS.find(([one]) => one === name)?.[0] ?? 'eq';

/** Rows between two bounds of an index, both with their values. An empty bound is none. */
export function between(rows: Term, index: string, from: string, to: string): Term {
  if (from === '' && to === '') return rows;
  const bound = (text: string, none: Term) => (text === '' ? none : datum(parseValue(text)));
  return rows.between(bound(from, minval), bound(to, maxval), { index, right_bound: 'closed' });
}

/** The rows whose field fits. A name with dots is that of a field, or the path of one. */
export function filtered(rows: Term, { field, operator, text }: Condition): Term {
  if (field === '') return rows;
  const paths = field.includes('.') ? [[field], field.split('.')] : [[field]];
  const any = (tests: Term[]) => tests.reduce((one, other) => one.or(other));
  const value = (row: Term, path: string[]) => path.reduce((one, name) => one.row(name), row);
  return rows.filter((row) => {
    const has = any(paths.map((path) => value(row, path).default(null).ne(null)));
    if (operator === 'exists') return has;
    if (operator === 'missing') return has.eq(false);
    if (operator === 'ne') return has.and(any(paths.map((path) => fits(value(row, path), 'eq', text).default(false))).eq(false));
    return any(paths.map((path) => fits(value(row, path), operator, text).default(false)));
  });
}

// A value is compared with those of its own type only.
function fits(value: Term, operator: 'eq' | 'lt' | 'le' | 'gt' | 'ge' | 'contains', text: string): Term {
  const wanted = readings(text).map((one) => datum(one));
  if (operator === 'contains') {
    const inside = `(?i)${text.replace(/[\\^$.*+?()[\]{}|]/g, '\\$&')}`;
    return branch(value.typeOf().eq('STRING'), value.match(inside).ne(null), branch(value.typeOf().eq('ARRAY'), wanted.map((one) => value.contains(one)).reduce((one, other) => one.or(other)), false));
  }
  return wanted.map((one) => (operator === 'eq' ? value.eq(one) : and(value.typeOf().eq(one.typeOf()), value[operator](one)))).reduce((one, other) => one.or(other));
}

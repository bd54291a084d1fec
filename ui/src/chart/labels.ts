// The labels of axes: no two beside each other are equal.

const DAY = 86_400, MONTH = 28 * DAY;
const format = (options: Intl.DateTimeFormatOptions) => (seconds: number) => new Date(seconds * 1000).toLocaleString('en-GB', options);
const minutes = format({ hour: '2-digit', minute: '2-digit' });
const seconds = format({ hour: '2-digit', minute: '2-digit', second: '2-digit' });
const milliseconds = format({ hour: '2-digit', minute: '2-digit', second: '2-digit', fractionalSecondDigits: 3 });
const day = format({ day: 'numeric', month: 'short' });
const month = format({ month: 'short', year: 'numeric' });
const year = format({ year: 'numeric' });

/** Labels of times that are `step` seconds apart. The second line has the day, or the year, where another one begins. */
export function timeLabels(at: number[], step: number): string[] {
  if (step >= MONTH) return at.map(month);
  const [small, large] = step >= DAY ? [day, year] : [step >= 60 ? minutes : step >= 1 ? seconds : milliseconds, day];
  const isOne = at.length === 0 || large(at[0]!) === large(at.at(-1)!);
  return at.map((one, i) => (isOne || (i > 0 && large(one) === large(at[i - 1]!)) ? small(one) : `${small(one)}\n${large(one)}`));
}

/** Labels of numbers, with as many digits as they need to differ. */
export function numberLabels(at: number[], show: (value: number) => string): string[] {
  const said = at.map(show);
  if (new Set(said).size === said.length) return said;
  const step = Math.min(...at.slice(1).map((one, i) => Math.abs(one - at[i]!)));
  if (!said.every((label) => /^[-\d.,KMBT]+$/.test(label))) return withUnit(at, said, step) ?? said.map((label, i) => (label === said[i - 1] ? '' : label));
  const digits = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step))));
  const exact = new Intl.NumberFormat('en', { maximumFractionDigits: digits });
  return at.map((one) => exact.format(one));
}

// More digits before the unit of the largest number, which is a power of ten.
function withUnit(at: number[], said: string[], step: number): string[] | null {
  const largest = at.reduce((most, one, i) => (Math.abs(one) > Math.abs(at[most]!) ? i : most), 0);
  const [, number, unit] = /^(-?[\d.,]+)(\D+)$/.exec(said[largest]!) ?? [];
  const shown = Number(number?.replaceAll(',', ''));
  if (!shown || !unit) return null;
  const factor = 10 ** Math.round(Math.log10(at[largest]! / shown));
  const digits = Math.min(12, Math.max(0, Math.ceil(-Math.log10(step / factor))));
  const exact = new Intl.NumberFormat('en', { maximumFractionDigits: digits });
  return at.map((one) => `${exact.format(one / factor)}${unit}`);
}

/** Names cut to a length; those that are equal then, in their middle. */
export function nameLabels(names: string[], most = 14): string[] {
  const cut = names.map((name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name));
  const half = Math.floor((most - 1) / 2);
  return names.map((name, i) => (name.length > most && cut.filter((other) => other === cut[i]).length > 1 ? `${name.slice(0, half)}…${name.slice(-half)}` : cut[i]!));
}

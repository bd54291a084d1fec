// The function of an index, as a user would write it.

/** `indexCreate('city', function(var1) { return var1.getField("city"); }, {multi: true})` becomes `row("city")`. */
export function definition(query: string): string {
  const inside = query.replace(/^indexCreate\('.*?', /s, '').replace(/\)\s*$/, '').replace(/, \{(?:(?:multi|geo): (?:true|false)(?:, )?)+\}$/, '');
  const [, variable, body] = /^function\s*\((\w+)\) \{ return (.*); \}$/s.exec(inside) ?? [];
  if (variable === undefined || body === undefined) return inside;
  const named = body.replace(new RegExp(`\\b${variable}\\b`, 'g'), 'row').replace(/\.getField\(("(?:[^"\\]|\\.)*")\)/g, '($1)');
  return named.replace(/^r\.expr\((\[.*\])\)$/s, '$1').replace(/\br\.row\(/g, 'row(');
}

// The part of a script that a server's backtrace is about. The syntax tree and the term are walked side by side, as far as they agree.
import type { SyntaxNode } from '@lezer/common';
import type { Wire } from '../lib/terms';

export interface Range { from: number; to: number }
type Frames = readonly (number | string)[];
type Read = (node: { from: number; to: number }) => string;

const FUNC = 69;
const snake = (name: string) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
const isCall = (term: Wire | undefined): term is [number, Wire[], Record<string, Wire>?] => Array.isArray(term);

/** The place of a failed term. `statement` is the expression that built it. */
export function place(statement: SyntaxNode, term: Wire, frames: Frames, read: Read): Range {
  let node = plain(statement, read), wire: Wire | undefined = term;
  for (let at = 0; at < frames.length; at++) {
    const frame = frames[at]!;
    // An argument with r.row is a function to the server.
    if (isCall(wire) && wire[0] === FUNC && !isFunction(node)) { wire = wire[1][1]; continue; }
    const next = step(node, wire, frame, read);
    if (!next) break;
    node = plain(next, read);
    wire = inside(wire, frame);
  }
  const callee = node.name === 'CallExpression' ? node.firstChild : null;
  const name = callee?.name === 'MemberExpression' && !isRoot(callee.firstChild, read) ? callee.getChild('PropertyName') : null;
  return { from: name?.from ?? node.from, to: node.to };
}

/** The expression that built the query of a statement; null if there are several. */
export function expressionOf(statement: SyntaxNode, isShown: boolean): SyntaxNode | null {
  if (isShown && statement.name === 'ExpressionStatement') return statement.firstChild;
  const awaited: SyntaxNode[] = [];
  const cursor = statement.cursor();
  do { if (cursor.to > statement.to) break; if (cursor.name === 'AwaitExpression') awaited.push(cursor.node); } while (cursor.next());
  return awaited.length === 1 ? awaited[0]! : null;
}

/** The first call of a method of this name in a statement, from its dot. */
export function methodPlace(statement: SyntaxNode, method: string, read: Read): Range | null {
  const cursor = statement.cursor();
  do {
    if (cursor.from >= statement.to) break;
    const { node } = cursor;
    if (node.name !== 'CallExpression' || methodOf(node, read) !== method) continue;
    const name = node.firstChild!.getChild('PropertyName')!;
    return { from: name.prevSibling?.from ?? name.from, to: name.to };
  } while (cursor.next());
  return null;
}

function inside(wire: Wire | undefined, frame: number | string): Wire | undefined {
  if (isCall(wire)) return typeof frame === 'number' ? wire[1][frame] : wire[2]?.[frame];
  return typeof wire === 'object' && wire !== null ? (wire as Record<string, Wire>)[frame] : undefined;
}

const isRoot = (node: SyntaxNode | null, read: Read) => node?.name === 'VariableName' && read(node) === 'r';
const isFunction = (node: SyntaxNode) => node.name === 'ArrowFunction' || node.name === 'FunctionExpression';
// Children without punctuation and comments.
function children(node: SyntaxNode | null): SyntaxNode[] {
  const found: SyntaxNode[] = [];
  for (let child = node?.firstChild ?? null; child; child = child.nextSibling) if (/^[A-Z]/.test(child.name) && !child.name.endsWith('Comment')) found.push(child);
  return found;
}
const argumentsOf = (call: SyntaxNode) => children(call.getChild('ArgList'));
const methodOf = (call: SyntaxNode, read: Read) => { const name = call.firstChild?.name === 'MemberExpression' ? call.firstChild.getChild('PropertyName') : null; return name ? read(name) : null; };

// Without what builds no term: parentheses, await, run and expr.
function plain(node: SyntaxNode, read: Read): SyntaxNode {
  for (;;) {
    let next: SyntaxNode | null | undefined = null;
    if (node.name === 'ParenthesizedExpression' || node.name === 'AwaitExpression') next = children(node).at(-1);
    else if (node.name === 'CallExpression') {
      const method = methodOf(node, read), callee = node.firstChild!;
      if (method === 'run') next = callee.firstChild;
      else if (isRoot(callee, read) || (method === 'expr' && isRoot(callee.firstChild, read))) next = argumentsOf(node)[0];
    }
    if (!next || next.from === node.from && next.to === node.to && next.name === node.name) return node;
    node = next;
  }
}

function step(node: SyntaxNode, wire: Wire | undefined, frame: number | string, read: Read): SyntaxNode | null {
  if (node.name === 'ObjectExpression') return property(node, String(frame), read);
  if (node.name === 'ArrayExpression') return typeof frame === 'number' ? children(node)[frame] ?? null : null;
  if (isFunction(node)) return frame === 1 ? body(node) : null;
  if (node.name !== 'CallExpression' || !isCall(wire)) return null;
  const all = argumentsOf(node), last = all.at(-1);
  if (typeof frame === 'string') return last?.name === 'ObjectExpression' ? property(last, frame, read) : null;
  const given = wire[2] && last?.name === 'ObjectExpression' ? all.slice(0, -1) : all;
  const callee = node.firstChild!, isMethod = callee.name === 'MemberExpression';
  const terms = isMethod && isRoot(callee.firstChild, read) ? given : [isMethod ? callee.firstChild! : callee, ...given];
  // The function that do calls comes first on the wire.
  if (methodOf(node, read) === 'do') terms.unshift(terms.pop()!);
  return terms.length === wire[1].length ? terms[frame] ?? null : null;
}

function property(object: SyntaxNode, wanted: string, read: Read): SyntaxNode | null {
  for (const one of object.getChildren('Property')) {
    const [name, value] = children(one);
    const text = name ? read(name).replace(/^(['"])(.*)\1$/, '$2') : '';
    if (value && (text === wanted || snake(text) === wanted)) return value;
  }
  return null;
}

function body(node: SyntaxNode): SyntaxNode | null {
  const last = children(node).at(-1);
  if (last?.name !== 'Block') return last ?? null;
  return children(last.getChild('ReturnStatement'))[0] ?? null;
}

// The editor of the explorer, in a file of its own: it is loaded with the first visit.
import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from '@codemirror/autocomplete';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { javascript } from '@codemirror/lang-javascript';
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting, syntaxTree, ensureSyntaxTree } from '@codemirror/language';
import { lintKeymap, setDiagnostics, type Diagnostic } from '@codemirror/lint';
import { EditorState, Prec, type Extension } from '@codemirror/state';
import { drawSelection, EditorView, keymap, lineNumbers, placeholder } from '@codemirror/view';
import type { SyntaxNode } from '@lezer/common';
import { tags } from '@lezer/highlight';
import type { Wire } from '../lib/terms';
import { completer, type Names } from './completion';
import { expressionOf, methodPlace, place, type Range } from './places';

export type { Names } from './completion';
export interface Options {
  parent: HTMLElement;
  nonce: string;
  text: string;
  names: () => Names;
  onchange: (text: string) => void;
  onrun: () => void;
  /** Alt and an arrow: earlier and later queries. */
  onhistory: (step: -1 | 1) => void;
}
/** A top-level statement of a script. */
export interface Statement { from: number; to: number; text: string }
/** A query that the server refused: its statement, its term, and where in it. */
export interface Failed { statement: number; isShown: boolean; term: Wire; backtrace: (number | string)[] }
/** `error` is the first place that is no JavaScript; lines and columns begin with one. `isAtEnd`: the text ends too early. */
export interface Script {
  code: string;
  statements: Statement[];
  error: (Range & { line: number; column: number; isAtEnd: boolean }) | null;
  /** The part of the text that failed; null if it cannot be told. */
  locate: (failed: Failed) => Range | null;
  /** The first call of a method in a statement. */
  locateMethod: (statement: number, method: string) => Range | null;
}

const colours = HighlightStyle.define([
  { tag: tags.string, color: 'var(--string)' }, { tag: [tags.number, tags.bool, tags.null], color: 'var(--number)' },
  { tag: [tags.keyword, tags.operator], color: 'var(--boolean)' }, { tag: tags.comment, color: 'var(--dim)', fontStyle: 'italic' },
  { tag: tags.propertyName, color: 'var(--key)' }, { tag: tags.variableName, color: 'var(--text)' },
]);
const theme = EditorView.theme({
  '&': { fontSize: '13px' },
  '.cm-content': { fontFamily: 'var(--mono)', padding: '10px 0', caretColor: 'var(--text)' },
  '.cm-gutters': { background: 'transparent', border: 'none', color: 'var(--dim)' },
  '.cm-cursor': { borderLeftColor: 'var(--text)' },
  '&.cm-focused .cm-selectionBackground, .cm-selectionBackground': { background: 'color-mix(in srgb, var(--accent-text) 26%, transparent) !important' },
  '.cm-tooltip': { background: 'var(--card)', color: 'var(--text)', border: '1px solid var(--line)', borderRadius: '8px', boxShadow: 'var(--shadow)' },
  '.cm-tooltip-autocomplete ul li[aria-selected]': { background: 'var(--accent-soft)', color: 'var(--accent-text)' },
  '.cm-completionInfo': { maxWidth: '340px', padding: '8px 10px' },
  '.cm-placeholder': { color: 'var(--dim)' },
  '.cm-matchingBracket': { background: 'var(--accent-soft) !important', outline: '1px solid var(--accent-text)' },
});

export class Editor {
  private view: EditorView;

  constructor(private options: Options) {
    const run = { key: 'Shift-Enter', run: () => { options.onrun(); return true; }, preventDefault: true };
    this.view = new EditorView({
      parent: options.parent,
      state: EditorState.create({ doc: options.text, extensions: this.extensions(run) }),
    });
  }

  private extensions(run: { key: string; run: () => boolean; preventDefault: boolean }): Extension {
    const { options } = this;
    return [
      Prec.highest(keymap.of([run, { ...run, key: 'Mod-Enter' }, { key: 'Alt-ArrowUp', run: () => { options.onhistory(-1); return true; } }, { key: 'Alt-ArrowDown', run: () => { options.onhistory(1); return true; } }])),
      EditorView.cspNonce.of(options.nonce), lineNumbers(), history(), drawSelection(), indentOnInput(), bracketMatching(), closeBrackets(),
      javascript(), syntaxHighlighting(colours), theme, EditorView.lineWrapping, placeholder("r.db('test').table('…')"),
      autocompletion({ override: [completer(options.names)], activateOnTypingDelay: 60 }),
      // Escape, then Tab, leaves the editor.
      keymap.of([...closeBracketsKeymap, ...completionKeymap, ...lintKeymap, ...historyKeymap, ...defaultKeymap, indentWithTab]),
      EditorView.contentAttributes.of({ 'aria-label': 'Query', spellcheck: 'false', autocapitalize: 'off' }),
      EditorView.updateListener.of((update) => { if (update.docChanged) options.onchange(update.state.doc.toString()); }),
    ];
  }

  get text(): string { return this.view.state.doc.toString(); }

  set text(text: string) {
    if (text !== this.text) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text }, selection: { anchor: 0 }, effects: EditorView.scrollIntoView(0) });
  }

  /** The script to run: each top-level expression is shown. */
  script(): Script {
    const { state } = this.view;
    const tree = ensureSyntaxTree(state, state.doc.length, 1000) ?? syntaxTree(state);
    let wrong: Range | null = null;
    tree.iterate({ enter: (node) => { if (node.type.isError && !wrong) wrong = { from: node.from, to: Math.max(node.to, node.from + 1) }; } });
    const statements: Statement[] = [];
    const nodes: SyntaxNode[] = [];
    let code = '', at = 0;
    for (let node = tree.topNode.firstChild; node; node = node.nextSibling) {
      if (node.name === 'LineComment' || node.name === 'BlockComment') continue;
      const number = statements.length;
      nodes.push(node);
      statements.push({ from: node.from, to: node.to, text: state.sliceDoc(node.from, node.to) });
      code += state.sliceDoc(at, node.from);
      at = node.to;
      if (node.name === 'ExpressionStatement') code += `;await __show(${number},(${state.sliceDoc(node.from, node.to).replace(/;\s*$/, '')}\n));`;
      else code += `;__at(${number});${state.sliceDoc(node.from, node.to)}`;
    }
    const read = ({ from, to }: Range) => state.sliceDoc(from, to);
    const locate = (failed: Failed) => {
      const node = nodes[failed.statement];
      const expression = node ? expressionOf(node, failed.isShown) : null;
      return expression && place(expression, failed.term, failed.backtrace, read);
    };
    const locateMethod = (statement: number, method: string) => (nodes[statement] ? methodPlace(nodes[statement], method, read) : null);
    return { code: code + state.sliceDoc(at), statements, error: wrong && { ...(wrong as Range), ...this.lineOf(wrong), isAtEnd: (wrong as Range).from >= state.doc.toString().trimEnd().length }, locate, locateMethod };
  }

  private lineOf({ from }: Range): { line: number; column: number } {
    const line = this.view.state.doc.lineAt(Math.min(from, this.view.state.doc.length));
    return { line: line.number, column: from - line.from + 1 };
  }

  /** Marks a part of the text as wrong. */
  mark(range: { from: number; to: number } | null, message = ''): void {
    const length = this.view.state.doc.length;
    const diagnostics: Diagnostic[] = range ? [{ from: Math.max(0, Math.min(range.from, length - 1)), to: Math.min(range.to, length), severity: 'error', message }] : [];
    this.view.dispatch(setDiagnostics(this.view.state, diagnostics));
  }

  focus(): void { this.view.focus(); }
  destroy(): void { this.view.destroy(); }
}

// Runs the scripts of a benchmark report without a browser and returns the page's text.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const ASSETS = path.join(__dirname, '..', '..', '..', 'crates', 'bench', 'assets');

// The part of the DOM that the scripts use.
class Element {
  constructor(name) {
    this.name = name;
    this.children = [];
    this.dataset = {};
  }

  append(...children) { this.children.push(...children); }
  setAttribute() {}
  addEventListener() {}
  set textContent(text) { this.children = [text]; }
  get textContent() { return this.children.map((child) => (child instanceof Element ? child.textContent : String(child))).join(''); }

  all(name) {
    const inside = this.children.filter((child) => child instanceof Element);
    return inside.flatMap((child) => [...(child.name === name ? [child] : []), ...child.all(name)]);
  }
}

// What stands under the heading, up to the next one: its text, its facts by name and its tables, each row by the
// names of its columns.
function under(main, heading) {
  const from = main.children.findIndex((child) => child.name === 'h2' && child.textContent === heading);
  if (from < 0) throw new Error(`no heading ${heading}`);
  const length = main.children.slice(from + 1).findIndex((child) => child.name === 'h2');
  const part = new Element('part');
  part.append(...main.children.slice(from, length < 0 ? undefined : from + 1 + length));
  const cells = (row, name) => row.all(name).map((cell) => cell.textContent);
  const tables = part.all('table').map((table) => {
    const [head, ...rows] = table.all('tr');
    const names = cells(head, 'th');
    return rows.map((row) => Object.fromEntries(cells(row, 'td').map((cell, i) => [names[i], cell])));
  });
  const facts = Object.fromEntries(part.all('dl').flatMap((list) => list.all('div').map((fact) => [fact.all('dt')[0].textContent, fact.all('dd')[0].textContent])));
  return { text: part.textContent, tables, facts };
}

// Renders these results as `bench report` does; the result returns the content under a heading of the page.
function page({ runs = [], sweeps = [] }) {
  const published = JSON.parse(fs.readFileSync(path.join(ASSETS, 'published.json'), 'utf8'));
  const places = { data: new Element('script'), main: new Element('main'), subtitle: new Element('p'), theme: new Element('button') };
  places.data.append(JSON.stringify({ runs, sweeps, published, skipped: [] }));
  const context = vm.createContext({
    Node: Element,
    document: { getElementById: (id) => places[id], createElement: (name) => new Element(name), documentElement: new Element('html') },
    matchMedia: () => ({ matches: false, addEventListener() {} }),
    getComputedStyle: () => ({ getPropertyValue: () => '' }),
    // Charts are drawn when they have a width.
    ResizeObserver: class { observe() {} },
  });
  const scripts = ['charts.js', 'sweep.js', 'units.js', 'report.js'];
  const source = scripts.map((name) => fs.readFileSync(path.join(ASSETS, name), 'utf8')).join('\n');
  vm.runInContext(source, context, { filename: 'report' });
  return { under: (heading) => under(places.main, heading), subtitle: places.subtitle.textContent };
}

module.exports = { page };

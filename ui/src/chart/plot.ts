// Charts by uPlot, in a file of its own: it is loaded with the first chart.
import uPlot from 'uplot';
import { nameLabels, numberLabels, timeLabels } from './labels';

/** One line or one set of bars. `colour` is a variable of the style sheet. */
export interface Series { label: string; colour: string; values: (number | null)[] }
export interface Shape {
  /** Seconds since 1970 on the horizontal axis, numbers, or the places of names. */
  axis: 'time' | 'number' | 'names';
  /** The most that a horizontal axis shows, which ends at the last value. It begins at the first one if that is later. */
  span?: number;
  names?: string[];
  bars?: boolean;
  height: number;
  /** The text of a value, on the axis and under the pointer. */
  show: (value: number) => string;
  /** Charts with the same group move their pointers together. */
  group?: string;
  /** The least height of the vertical axis, so that noise does not fill it. */
  least?: number;
  /** Whether the vertical axis begins at zero. */
  fromZero?: boolean;
  onpoint?: (index: number | null) => void;
}

/** Seconds that an axis of times shows at least. */
const SPAN_MIN = 60;
const colour = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Plot {
  private plot: uPlot;
  private observer: ResizeObserver;

  constructor(private parent: HTMLElement, private shape: Shape, x: number[], series: Series[]) {
    this.plot = new uPlot(this.options(series), [x, ...series.map((one) => one.values)] as uPlot.AlignedData, parent);
    this.observer = new ResizeObserver(() => { if (parent.clientWidth > 0 && parent.clientWidth !== this.plot.width) this.plot.setSize({ width: parent.clientWidth, height: shape.height }); });
    this.observer.observe(parent);
  }

  private options(series: Series[]): uPlot.Options {
    const { shape } = this;
    const axis: uPlot.Axis = { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { show: false }, font: '11px system-ui, sans-serif', gap: 6 };
    const across: uPlot.Axis = { ...axis, grid: { show: false }, size: (_, labels) => (labels?.some((label) => label.includes('\n')) ? 44 : 28), space: 64 };
    if (shape.axis === 'time') across.values = (_, ticks, _axis, _space, step) => this.note('x', timeLabels(ticks, step));
    if (shape.axis === 'names') {
      across.splits = (plot) => this.places(plot, shape.names!.length);
      across.values = (_, ticks) => this.note('x', nameLabels(ticks.map((tick) => shape.names![tick] ?? '')));
    }
    const bars = shape.bars ? uPlot.paths.bars!({ size: [0.7, 64], radius: 0.1 }) : undefined;
    const lines = series.map((one): uPlot.Series => ({
      label: one.label, stroke: colour(one.colour), width: shape.bars ? 0 : 1.5, fill: shape.bars || series.length === 1 ? `${colour(one.colour)}${shape.bars ? 'cc' : '1f'}` : undefined,
      points: shape.bars ? { show: false } : { size: 4 }, paths: bars, spanGaps: false,
    }));
    return {
      width: this.parent.clientWidth || 300, height: shape.height, padding: [8, 22, 0, 0], legend: { show: false },
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false }, sync: shape.group ? { key: shape.group } : undefined },
      scales: {
        x: { time: shape.axis === 'time', range: shape.axis === 'names' ? [-0.6, shape.names!.length - 0.4] : shape.span ? (plot) => this.lastOnes(plot, shape.span!) : undefined },
        y: { range: (_, low, high) => range(low, high === null ? high : Math.max(high, shape.least ?? high), shape.fromZero ?? true) },
      },
      axes: [across, { ...axis, size: 58, values: (_, ticks) => this.note('y', numberLabels(ticks, shape.show)), space: 34 }],
      series: [{}, ...lines],
      hooks: { setCursor: [(plot) => shape.onpoint?.(plot.cursor.idx ?? null)] },
    };
  }

  // The labels as text: what is drawn can be read by tests alone there.
  private note(axis: 'x' | 'y', labels: string[]): string[] {
    this.parent.dataset[axis] = labels.join('|');
    return labels;
  }

  // From the data: uPlot itself shows a day if there is one value.
  private lastOnes(plot: uPlot, span: number): [number, number] {
    const times = plot.data[0], last = times.at(-1) ?? Date.now() / 1000;
    return [Math.min(Math.max(times[0] ?? last, last - span), last - SPAN_MIN), last];
  }

  // As many names as there is room for.
  private places(plot: uPlot, count: number): number[] {
    const step = Math.max(1, Math.ceil((count * 90) / Math.max(90, plot.width - 70)));
    return Array.from({ length: Math.ceil(count / step) }, (_, i) => i * step);
  }

  set(x: number[], series: Series[]): void { this.plot.setData([x, ...series.map((one) => one.values)] as uPlot.AlignedData); }

  destroy(): void {
    this.observer.disconnect();
    this.plot.destroy();
  }
}

// A little room above the highest value; a flat line is not at the edge.
function range(low: number | null, high: number | null, fromZero: boolean): [number, number] {
  if (low === null || high === null || !Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
  const bottom = fromZero ? Math.min(0, low) : low;
  const room = (high - bottom || Math.abs(high) || 1) * 0.08;
  return [fromZero && bottom === 0 ? 0 : bottom - room, high + room];
}

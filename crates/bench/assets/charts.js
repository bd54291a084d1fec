// The charts of a benchmark report: lines over time, and complete percentile curves up to the maximum.
'use strict';

const charts = (() => {
  const drawn = [];

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  const palette = ['--chart-1', '--chart-2', '--chart-3', '--chart-4'];

  function axis(extra) {
    return { stroke: colour('--dim'), grid: { stroke: colour('--line'), width: 1 }, ticks: { stroke: colour('--line') }, ...extra };
  }

  function short(value) {
    if (value === null || value === undefined) return '';
    const size = Math.abs(value);
    if (size >= 1e6) return `${+(value / 1e6).toPrecision(3)} M`;
    if (size >= 1e3) return `${+(value / 1e3).toPrecision(3)} k`;
    return String(+value.toPrecision(3));
  }

  function time(us) {
    if (us === null || us === undefined) return '–';
    if (us >= 1e6) return `${+(us / 1e6).toPrecision(3)} s`;
    if (us >= 1e3) return `${+(us / 1e3).toPrecision(3)} ms`;
    return `${+us.toPrecision(3)} µs`;
  }

  function lines(labels, dashFrom) {
    return labels.map((label, i) => ({
      label,
      stroke: colour(palette[i % palette.length]),
      width: 2,
      // With more lines than colours, the colours repeat on dotted lines.
      dash: i >= dashFrom ? [6, 4] : (i >= palette.length && [2, 3]) || undefined,
      points: { show: false },
    }));
  }

  // Draws into `figure`, and again when its width or the theme changes.
  function place(figure, build) {
    const entry = { figure, build, chart: null };
    drawn.push(entry);
    const draw = () => {
      const width = Math.floor(figure.clientWidth - 26);
      if (width < 40) return;
      if (entry.chart) entry.chart.destroy();
      entry.chart = build(width, figure);
    };
    entry.draw = draw;
    new ResizeObserver(draw).observe(figure);
  }

  function redraw() {
    drawn.forEach((entry) => entry.draw());
  }

  // One value per second. `series` is [{label, values}].
  function overTime(figure, seconds, series, format, logarithmic) {
    place(figure, (width) => new uPlot({
      width,
      height: 230,
      cursor: { drag: { x: true, y: false } },
      scales: { x: { time: false }, y: logarithmic ? { distr: 3 } : { range: (_, low, high) => [Math.min(0, low), high * 1.08 || 1] } },
      axes: [
        axis({ values: (_, ticks) => ticks.map((tick) => `${tick} s`) }),
        axis({ size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format(tick))) }),
      ],
      series: [
        { label: 'second', value: (_, at) => (at === null ? '–' : `${at} s`) },
        ...lines(series.map((one) => one.label), 99).map((line) => ({ ...line, value: (_, at) => format(at) || '–' })),
      ],
    }, [seconds, ...series.map((one) => one.values)], figure));
  }

  // One value per cluster size. `series` is [{label, values, dashed, right}]; `right` uses the right axis.
  function overNodes(figure, nodes, series, format) {
    const fromNothing = { range: (_, low, high) => [0, high * 1.08 || 1] };
    const upright = (extra) => axis({ size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null ? '' : format(tick))), ...extra });
    const right = series.findIndex((one) => one.right);
    const ofRight = right < 0 ? [] : [upright({ scale: 'right', side: 1, stroke: colour(palette[right]), grid: { show: false } })];
    place(figure, (width) => new uPlot({
      width,
      height: 260,
      scales: { x: { time: false, range: (_, low, high) => [0, high] }, y: fromNothing, right: fromNothing },
      axes: [axis({ splits: () => nodes, values: (_, ticks) => ticks.map(String) }), upright({}), ...ofRight],
      series: [
        { label: 'nodes' },
        ...lines(series.map((one) => one.label), series.findIndex((one) => one.dashed) < 0 ? 99 : series.findIndex((one) => one.dashed))
          .map((line, i) => ({ ...line, scale: series[i].right ? 'right' : 'y', spanGaps: true, points: { show: true, size: 5 }, value: (_, at) => (at === null ? '–' : format(at)) })),
      ],
    }, [nodes, ...series.map((one) => one.values)], figure));
  }

  const NINES = [0, 1, 2, 3, 4, 5, 6];
  const NINE_NAMES = ['0', '90', '99', '99.9', '99.99', '99.999', '99.9999'];

  // Percentile curves on logarithmic axes: each step to the right is one more nine.
  // `series` is [{label, curve: [[percentile, µs, count], …]}]; the last point is the maximum.
  function percentiles(figure, series, published) {
    const points = new Set();
    const positioned = series.concat(published).map(({ curve }) => curve.map(([percentile, us, count], i) => {
      const last = i === curve.length - 1;
      const left = last ? 1 / Math.max(count || 10, 10) : 1 - percentile / 100;
      return [-Math.log10(Math.max(left, 1e-7)), us];
    }));
    positioned.forEach((curve) => curve.forEach(([x]) => points.add(x)));
    const xs = [...points].sort((a, b) => a - b);
    const columns = positioned.map((curve) => {
      const at = new Map(curve);
      return xs.map((x) => (at.has(x) ? Math.max(at.get(x), 1) : null));
    });
    const labels = series.map((one) => one.label).concat(published.map((one) => one.label));
    place(figure, (width) => new uPlot({
      width,
      height: 260,
      scales: { x: { time: false, range: () => [0, Math.max(3, Math.ceil(xs[xs.length - 1] || 3))] }, y: { distr: 3 } },
      axes: [
        axis({ splits: () => NINES, values: (_, ticks) => ticks.map((tick) => (width < 420 && tick % 2 ? '' : NINE_NAMES[tick])) }),
        axis({ size: 62, values: (_, ticks) => ticks.map((tick) => (tick === null || Math.log10(tick) % 1 > 1e-9 ? '' : time(tick))) }),
      ],
      series: [
        { label: 'percentile', value: (_, at) => (at === null ? '–' : String(+(100 * (1 - 10 ** -at)).toFixed(4))) },
        ...lines(labels, series.length).map((line) => ({ ...line, spanGaps: true, value: (_, at) => time(at) })),
      ],
    }, [xs, ...columns], figure));
  }

  return { overNodes, overTime, percentiles, redraw, short, time };
})();

// The section of a report about sweeps over cluster sizes. `tools` are helper functions of the report.
'use strict';

const sweepPart = (sweep, tools) => {
  const { element, table, figure, whole, number, bytes, fold, pairs, published } = tools;
  const { time, short } = charts;
  const ratio = (value) => (value === null || value === undefined ? '–' : value.toFixed(2));
  const share = (value) => (value === null || value === undefined ? '–' : `${(value * 100).toFixed(0)} %`);

  function quota() {
    const { kind, core_share: part, quota_us: granted, period_us: period, why_none: why } = sweep.quota;
    if (part === null) return `No equal shares of processor time (${why || 'not asked for'}): read the CPU per operation, not the throughput.`;
    return `Each node had ${share(part)} of one core (${kind}: ${granted} µs of every ${period} µs), and the client had the rest. Compare only the ratios between sizes.`;
  }

  function law(fit) {
    const parameters = fit.lambda === null ? '' : `λ ${number(fit.lambda)}, σ ${number(fit.sigma)}, κ ${number(fit.kappa)}, off by up to ${share(fit.error_max)}`;
    if (!fit.applies) return `does not apply: ${fit.why_not}${parameters && ` (${parameters})`}`;
    return `${parameters}${fit.peak_nodes ? `; highest at ${fit.peak_nodes.toFixed(0)} nodes` : ''}`;
  }

  // Null if the law does not apply: no curve is drawn that could be mistaken for a measurement.
  function expected(fit, nodes) {
    if (!fit.applies) return null;
    return (fit.lambda * nodes) / (1 + fit.sigma * (nodes - 1) + fit.kappa * nodes * (nodes - 1));
  }

  // The published servers had whole machines, so their figures have a separate axis.
  function throughput(series) {
    const nodes = series.points.map((point) => point.nodes);
    const drawn = figure(series.name, `throughput against nodes, ${series.unit}: measured on the left, published on the right`);
    charts.overNodes(drawn, nodes, [
      { label: 'measured', values: series.points.map((point) => point.per_second) },
      { label: 'published', values: series.points.map((point) => point.published && point.published.per_second), right: true },
      { label: 'law', values: nodes.map((size) => expected(series.fit, size)) },
    ], short);
    return drawn;
  }

  const size = (nodes) => `${nodes} ${nodes === 1 ? 'node' : 'nodes'}`;

  // The base of speed-ups: the smallest cluster, or for series with two replicas the smallest cluster with two servers.
  function bases() {
    const named = (all) => all.map((series) => series.name).join('; ');
    const of = (base) => sweep.series.filter((series) => series.base_nodes === base);
    const all = [...new Set(sweep.series.map((series) => series.base_nodes))];
    const one = (base) => (all.length === 1 ? size(base) : `${size(base)} (${named(of(base))})`);
    const there = all.filter((base) => base !== null).sort((a, b) => a - b);
    const later = sweep.series.filter((series) => series.base_nodes !== series.points[0].nodes);
    const said = there.length ? [`Speed-up is relative to ${there.map(one).join(' and ')}.`] : [];
    if (of(null).length) said.push(`There is none for ${named(of(null))}.`);
    if (later.length) said.push(`One node has no second replica: it is not the base of ${named(later)}.`);
    return said.join(' ');
  }

  // Without a base, only sizes below it were run: there is nothing to compare.
  function scaling(series) {
    if (series.base_nodes === null) return [];
    const nodes = series.points.map((point) => point.nodes);
    const drawn = figure(series.name, 'speed-up against nodes');
    const base = series.points.find((point) => point.nodes === series.base_nodes);
    charts.overNodes(drawn, nodes, [
      { label: 'measured', values: series.points.map((point) => point.speed_up) },
      { label: 'published', values: series.points.map((point) => point.published && point.published.speed_up) },
      { label: 'law', values: nodes.map((size) => (series.fit.applies ? expected(series.fit, size) / base.per_second : null)) },
      { label: 'ideal', values: nodes.map((size) => (size < series.base_nodes ? null : size / series.base_nodes)), dashed: true },
    ], (value) => ratio(value));
    return drawn;
  }

  function costs(series) {
    const nodes = series.points.map((point) => point.nodes);
    const drawn = figure(series.name, 'server CPU per operation against nodes');
    charts.overNodes(drawn, nodes, [
      { label: 'all servers', values: series.points.map((point) => point.server_cpu_us_per_operation) },
    ], time);
    return drawn;
  }

  // The slowest and the fastest of several rounds.
  const spread = (all) => {
    const rounds = all.filter((rate) => rate !== null);
    return rounds.length > 1 ? `${whole(Math.min(...rounds))} to ${whole(Math.max(...rounds))}` : '–';
  };

  function rows(series) {
    return series.points.map((point) => {
      const published = point.published || {};
      return [point.nodes, whole(point.per_second), spread(point.rounds || []), ratio(point.speed_up), ratio(point.efficiency), whole(published.per_second), ratio(published.speed_up), ratio(published.efficiency),
        point.server_cpu_us_per_operation === null ? '–' : time(point.server_cpu_us_per_operation), bytes(point.written_bytes_per_operation), bytes(point.link_bytes_per_operation),
        share(point.client_busiest_thread_share), share(point.client_waiting_share), share(point.others_core_share), whole(point.failed)];
    });
  }

  const HEAD = ['Nodes', 'Per second', 'Rounds', 'Speed-up', 'Efficiency', 'Published per second', 'its speed-up', 'its efficiency', 'CPU/op', 'Disk/op', 'Links/op', 'Client thread', 'Client waited', 'Others', 'Failed'];

  function latencies(series) {
    const names = ['p50_us', 'p90_us', 'p95_us', 'p99_us', 'p999_us', 'max_us'];
    const all = series.points.flatMap((point) => point.latency.map((one) => [`${one.name} at ${point.nodes}`, whole(one.service.count), ...names.map((name) => time(one.service[name]))]));
    const kinds = [...new Set(series.points.flatMap((point) => point.latency.map((one) => one.name)))];
    const grid = element('div', { class: 'charts' });
    kinds.forEach((kind) => {
      const curves = series.points.flatMap((point) => point.latency.filter((one) => one.name === kind && one.service.curve.length).map((one) => ({ label: `${point.nodes}`, curve: one.service.curve })));
      if (!curves.length) return;
      const drawn = figure(`${kind}: percentiles by nodes`, 'each step to the right is one more nine; no value is left out');
      grid.append(drawn);
      charts.percentiles(drawn, curves, []);
    });
    return [table(['Operation', 'Count', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'max'], all), grid];
  }

  function perNode(series) {
    const all = series.points.flatMap((point) => point.by_node.map((one) => [point.nodes, one.address, share(one.core_share), one.cpu_us_per_operation === null ? '–' : time(one.cpu_us_per_operation), bytes(one.written_bytes_per_operation), bytes(one.link_bytes_per_operation), bytes(one.memory_bytes)]));
    return fold('Each node', table(['Nodes', 'Server', 'Of a core', 'CPU/op', 'Disk/op', 'Links/op', 'Memory'], all));
  }

  function raised(series) {
    const all = series.points.flatMap((point) => point.alarms.map((alarm) => [point.nodes, alarm.kind, element('span', {}, alarm.message)]));
    return all.length ? [fold('Alarms of each size, in all rounds', table(['Nodes', 'Alarm', 'Message'], all))] : [];
  }

  // The number of documents of one operation, if there is more than one.
  function sizes(series) {
    const there = published['rethinkdb-2.1.5'].workloads[series.workload];
    if (!there || !there.documents) return '';
    return `, measured over ${whole(sweep.settings.records)} documents, published over ${whole(there.documents)}: compare documents per second`;
  }

  function one(series) {
    return [element('h3', {}, series.name),
      element('div', { class: 'charts' }, throughput(series), scaling(series), costs(series)),
      element('p', {}, `${series.unit}${sizes(series)}. Universal Scalability Law: ${law(series.fit)}.`),
      element('p', { class: 'soft' }, `The same for the published figures: ${law(series.published_fit)}.`),
      table(HEAD, rows(series)), ...latencies(series), perNode(series), ...raised(series)];
  }

  function bars() {
    if (!sweep.bars.length) return [];
    const all = sweep.bars.map((bar) => [element('span', {}, bar.name), ratio(bar.found), `${bar.relation} ${bar.wanted}`, ratio(bar.published), bar.ok ? '✓' : '✗']);
    return [element('h3', {}, 'Targets'), table(['Bar', 'Measured', 'Wanted', 'Published', ''], all)];
  }

  const alarms = sweep.alarms.map((alarm) => element('div', { class: 'alarm', role: 'note' }, element('strong', {}, alarm.kind), `: ${alarm.message}`));
  const notes = sweep.notes.map((note) => element('div', { class: 'alarm', role: 'note' }, note));
  return [element('h2', {}, sweep.label ? `Sweep over cluster sizes (${sweep.label})` : 'Sweep over cluster sizes'),
    element('p', { class: 'soft' }, `${sweep.started_at}, server ${sweep.target.version || 'unknown'}${sweep.target.binary ? `, ${sweep.target.binary}` : ''}. ${quota()}`),
    element('p', { class: 'soft' }, `${bases()} The published figures are for RethinkDB 2.1.5 on 1 to 16 servers. CPU/op, disk/op and links/op are totals of all servers. Others is the share of one core that other programs on this machine used meanwhile.`),
    ...alarms, ...notes, ...bars(), ...sweep.series.flatMap(one),
    fold('Settings of the sweep', element('p', {}, element('code', {}, sweep.command.join(' '))), table(['Setting', 'Value'], pairs({ ...sweep.settings, ...sweep.machine })))];
};

// The report page: reads the results embedded in it and lays them out. No network.
'use strict';

(() => {
  const { runs, sweeps = [], published, skipped = [] } = JSON.parse(document.getElementById('data').textContent);
  const main = document.getElementById('main');
  const { short, time } = charts;
  const count = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
  const fine = new Intl.NumberFormat('en', { maximumSignificantDigits: 4 });
  const NONE = '–';

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    Object.entries(attributes || {}).forEach(([key, value]) => made.setAttribute(key, value));
    children.flat().forEach((child) => made.append(child));
    return made;
  }

  const known = (value) => value !== null && value !== undefined;
  const whole = (value) => (known(value) ? count.format(value) : NONE);
  const number = (value) => (known(value) ? fine.format(value) : NONE);
  // Counts in full, ratios shortened.
  const exact = (value) => (Number.isInteger(value) ? whole(value) : number(value));
  const bytes = (value) => {
    if (!known(value)) return NONE;
    const units = ['B', 'KB', 'MB', 'GB', 'TB'];
    let unit = 0;
    let rest = value;
    while (rest >= 1000 && unit < units.length - 1) { rest /= 1000; unit += 1; }
    return `${fine.format(rest)} ${units[unit]}`;
  };

  function table(head, rows) {
    const line = (cell) => (cell instanceof Node ? element('td', { class: 'text' }, cell) : element('td', {}, String(cell)));
    return element('div', { class: 'wide', tabindex: '0' }, element('table', {},
      element('thead', {}, element('tr', {}, head.map((text) => element('th', { scope: 'col' }, text)))),
      element('tbody', {}, rows.map((row) => element('tr', {}, row.map(line))))));
  }

  function figure(title, note) {
    return element('figure', {}, element('figcaption', {}, title, ' ', element('span', {}, note || '')));
  }

  const durability = (run) => run.settings['rethinkdb.durability'] || run.settings.durability || NONE;

  // Settings that may distinguish two runs with the same name, the most important first.
  const TELLING = [
    ['durability', durability], ['read mode', (run) => run.settings['rethinkdb.readmode'] || NONE],
    ['connections', (run) => run.loop.connections], ['pipeline', (run) => run.loop.pipeline],
    ['target', (run) => run.loop.target_per_second || NONE], ['servers', (run) => run.settings.hosts || NONE],
    ...['recordcount', 'requestdistribution', 'ids', 'tx', 'block-bytes', 'fieldalphabet', 'seconds', 'operations'].map((name) => [name, (run) => run.settings[name] ?? NONE]),
  ];

  // A unique name for every run: with its label, or with the settings that differ.
  function distinctTitles() {
    const plain = runs.map((run) => (run.label ? `${run.name} (${run.label})` : run.name));
    const full = plain.map((name, i) => {
      const alike = runs.filter((_, other) => plain[other] === name);
      if (alike.length === 1) return name;
      const differing = TELLING.filter(([, of]) => new Set(alike.map(of)).size > 1).slice(0, 3);
      const told = differing.map(([what, of]) => `${what} ${of(runs[i])}`);
      return told.length ? `${name}, ${told.join(', ')}` : name;
    });
    return full.map((name, i) => {
      const before = full.slice(0, i).filter((other) => other === name).length;
      return full.indexOf(name) === full.lastIndexOf(name) ? name : `${name} #${before + 1}`;
    });
  }

  const titles = new Map(distinctTitles().map((name, i) => [runs[i], name]));
  const title = (run) => titles.get(run);
  const link = (run, text) => element('a', { href: `#run-${runs.indexOf(run)}` }, text || title(run));
  const SHORT_UNITS = { 'operations/s': 'op/s', 'documents/s': 'doc/s', 'blocks/s': 'block/s' };

  // Computed from the mean time of the runs, as in the published figures and in a sweep: the time between runs does not count.
  function documentsByMeanTime(run) {
    const total = run.runs.reduce((ms, one) => ms + one.ms, 0);
    return total > 0 && run.settings.documents ? (run.settings.documents * 1e3 * run.runs.length) / total : null;
  }

  // The main rate of a run: documents for loads and scans, blocks for blocks.
  function rate(run) {
    const scanned = run.kind === 'analytic' ? documentsByMeanTime(run) : null;
    if (scanned !== null) return { value: scanned, unit: 'documents/s' };
    const wanted = { 'ycsb-load': 'documents', analytic: 'documents', blocks: 'blocks', wiki: 'documents' }[run.kind];
    const unit = run.throughput.units.find((one) => one.name === wanted);
    // An idle cluster receives no queries, so it has no rate.
    if (run.kind === 'idle') return { value: null, unit: 'operations/s' };
    return unit ? { value: unit.per_second, unit: `${unit.name}/s` } : { value: run.throughput.operations_per_second, unit: 'operations/s' };
  }

  const shareOfCore = (share) => (share === null ? NONE : `${+(share * 100).toPrecision(3)} % of a core`);
  // Null if a value is unknown: a partial sum would mislead.
  const sum = (values) => (values.length && values.every((value) => value !== null) ? values.reduce((all, value) => all + value, 0) : null);
  const most = (values) => (sum(values) === null ? null : Math.max(...values));
  const coreShare = (run, server) => (server.cpu_seconds === null ? null : server.cpu_seconds / run.time.measured_seconds);

  // The mean of all kinds of operations. If it is unknown because each kind ran alone: the range from the cheapest to the most expensive kind.
  function serverCpu(run) {
    const all = run.cost.server_cpu_us_per_operation;
    if (all !== null) return time(all);
    const kinds = run.operations.map((one) => one.server_cpu_us_per_operation).filter(known);
    if (!kinds.length) return NONE;
    return [...new Set([Math.min(...kinds), Math.max(...kinds)].map(time))].join(' to ');
  }

  function baseline(run) {
    const report = run.published && published[run.published.report];
    const workload = report && report.workloads[run.published.workload];
    if (!workload) return null;
    const servers = String(run.published.servers);
    const find = (table) => (table ? table[servers] ?? table.any ?? null : null);
    const factor = workload.per_connection ? run.loop.connections : 1;
    const scale = (value) => (value === null ? null : value * factor);
    return { report, workload, servers, raw: scale(find(workload.raw)), stated: scale(find(workload.stated)) };
  }

  // Whether --http would have added figures. `units` has no such flag. `sweep` has it for existing clusters, and does not
  // read the metrics pages of servers on this machine.
  function wantsHttp(run) {
    const [command, ...flags] = run.command.slice(run.command.indexOf('bench') + 1);
    if (command === 'units') return false;
    if (command !== 'sweep') return true;
    const isGiven = flags.some((flag) => flag === '--cluster' || flag.startsWith('--cluster='));
    return isGiven && run.servers.some((server) => server.source !== 'proc');
  }

  // Only the server's metrics page has the number of fsyncs.
  const writes = (run) => run.kind === 'ycsb-load' || run.kind === 'blocks' || run.operations.some((one) => one.ok > 0 && ['UPDATE', 'INSERT'].includes(one.name));
  const perFsync = (run) => {
    if (!run.log) return writes(run) && wantsHttp(run) ? 'needs --http' : NONE;
    return run.log.acknowledged_writes > 0 ? number(run.log.acknowledged_writes_per_fsync) : NONE;
  };

  function summary() {
    const head = ['Run', 'Rate', 'p50', 'p95', 'p99', 'p99.9', 'max', 'CPU/op', 'Writes/fsync', 'Errors'];
    const rows = runs.map((run) => {
      const all = run.operations.reduce((most, one) => (one.ok > (most ? most.ok : -1) ? one : most), null);
      const latency = all ? all.intended || all.service : {};
      const { value, unit } = rate(run);
      const failed = run.operations.reduce((sum, one) => sum + one.failed, 0);
      return [link(run), value === null ? NONE : `${whole(value)} ${SHORT_UNITS[unit] || unit}`,
        ...['p50_us', 'p95_us', 'p99_us', 'p999_us', 'max_us'].map((name) => time(latency[name])),
        serverCpu(run), perFsync(run), whole(failed)];
    });
    main.append(element('h2', {}, 'All runs'),
      element('p', { class: 'soft' }, 'Latencies are for the most frequent operation of a run, from sending the query to reading its response; in an open loop they start at the scheduled time, so that waiting behind slow operations counts. No value is left out: the maximum is the true maximum. CPU/op is processor time of the servers; if each kind of operation ran alone, it is the range from the cheapest to the most expensive kind. The number of fsyncs is only on a server\'s metrics page; "needs --http" means that the command needs the address of that page. Sweeps and units do not read the metrics pages of servers on this machine, because serving a page uses the processor time that is measured.'),
      table(head, rows));
  }

  // The resources that servers used without queries.
  function idleUse(run) {
    const shares = run.servers.map((server) => coreShare(run, server));
    const memory = run.servers.map((server) => server.memory_bytes);
    return [
      [`CPU of ${run.servers.length === 1 ? 'the one server' : `all ${run.servers.length} servers`}`, shareOfCore(sum(shares))],
      ['CPU of the busiest', shareOfCore(most(shares))],
      ['Memory of all servers', bytes(sum(memory))],
      ['Memory of the largest', bytes(most(memory))],
    ];
  }

  function idleClusters() {
    const idle = runs.filter((run) => run.kind === 'idle');
    if (!idle.length) return;
    const rows = idle.map((run) => {
      const median = (name) => time((run.operations.find((one) => one.name === name) || { service: {} }).service.p50_us);
      return [link(run), run.servers.length, ...['tables', 'shards', 'replicas'].map((name) => whole(run.settings[name])),
        ...idleUse(run).map(([, text]) => text), median('TABLE-CREATE'), median('TABLE-STATUS')];
    });
    main.append(element('h2', {}, 'Clusters without queries'),
      table(['Run', 'Servers', 'Tables', 'Shards of each', 'Replicas of each', 'CPU, all servers', 'CPU, the busiest', 'Memory, all servers', 'Memory, the largest', 'table_create p50', 'table_status p50'], rows));
  }

  // Figures with a bar are marked; one that could not be measured has no verdict.
  function figureRows(run) {
    const text = (said) => element('span', {}, said);
    const verdict = (one) => (known(one.ok) ? (one.ok ? '✓ held' : '✗ MISSED') : '');
    return run.figures.map((one) => [text(one.name), exact(one.value), text(one.unit), known(one.bar) ? `≤ ${exact(one.bar)}` : NONE, text(verdict(one))]);
  }

  const hasFigures = (run) => (run.figures || []).length > 0;
  const FIGURE_HEAD = ['Figure', 'Value', 'Unit', 'Bar', ''];

  function changefeeds() {
    const measured = runs.filter((run) => run.kind === 'feeds' && hasFigures(run));
    if (!measured.length) return;
    const rows = measured.flatMap((run) => figureRows(run).map((row) => [link(run), ...row]));
    main.append(element('h2', {}, 'Changefeeds'),
      element('p', { class: 'soft' }, 'Each measurement has a new table. The checks of each run say whether every change of the table was delivered once and in order; without that, its figures are worthless.'),
      table(['Run', ...FIGURE_HEAD], rows));
  }

  function comparison() {
    // Tests of `bench units` are smaller than the published ones and have a separate section.
    const beside = runs.filter((run) => !run.units).map((run) => [run, baseline(run)]).filter(([, base]) => base && base.raw !== null);
    if (!beside.length) return;
    main.append(element('h2', {}, 'Published and measured'),
      element('p', { class: 'soft' }, 'The published figures, from the text and from the raw data, come from other machines. Compare the ratios of figures within one column, not one column with another. For a query over all documents, this table has its documents per second and the number of documents: with few documents, the fixed cost of a query has more weight.'));
    const rows = beside.map(([run, base]) => {
      const measured = rate(run).value;
      const over = (documents) => (base.workload.documents && documents ? `, over ${whole(documents)} documents` : '');
      return [element('span', {}, link(run), over(run.settings.documents)), element('span', {}, base.workload.title + over(base.workload.documents)), durability(run), run.loop.connections, base.servers, base.stated === null ? NONE : whole(base.stated), whole(base.raw), whole(measured), number(measured / base.raw), SHORT_UNITS[base.workload.unit || base.report.unit] || base.report.unit];
    });
    main.append(table(['Run', 'Published workload', 'Durability', 'Conn.', 'Servers', 'Stated', 'Raw data', 'Measured', 'Ratio', 'Unit'], rows));
    new Set(beside.map(([, base]) => base.report)).forEach((report) => main.append(element('p', { class: 'soft' }, `${report.title}: ${report.setup}.`)));
  }

  function facts(run) {
    const { value, unit } = rate(run);
    const shown = [
      [unit, whole(value)],
      ['Server CPU per operation', serverCpu(run)],
      ['Client CPU per operation', run.cost.client_cpu_us_per_operation === null ? NONE : time(run.cost.client_cpu_us_per_operation)],
      [run.servers.length > 1 ? 'Peak memory of the largest server' : 'Server peak memory', bytes(most(run.servers.map((server) => server.peak_memory_bytes)))],
      ['Bytes written per operation', bytes(run.cost.written_bytes_per_operation)],
      ['Connections', `${run.loop.connections}${run.loop.pipeline > 1 ? ` × ${run.loop.pipeline}` : ''}`],
    ];
    if (run.log) shown.push(['Acknowledged writes per fsync', perFsync(run)]);
    run.throughput.units.filter((one) => `${one.name}/s` !== unit && one.per_second !== value).forEach((one) => shown.push([`${one.name}/s`, one.name === 'bytes' ? bytes(one.per_second) : whole(one.per_second)]));
    return factList(shown);
  }

  function factList(shown) {
    return element('dl', { class: 'facts' }, shown.map(([name, text]) => element('div', {}, element('dt', {}, name), element('dd', {}, text))));
  }

  function eachServer(run) {
    const rows = run.servers.map((server) => [server.address, shareOfCore(coreShare(run, server)), bytes(server.memory_bytes), bytes(server.peak_memory_bytes), bytes(server.written_bytes)]);
    const all = table(['Server', 'CPU', 'Memory', 'Peak memory', 'Written'], rows);
    if (run.kind === 'idle') return [element('h3', {}, 'Each server'), all];
    return run.servers.length > 1 ? [fold('Each server', all)] : [];
  }

  function operations(run) {
    const rows = [];
    const alone = run.operations.some((one) => known(one.server_cpu_us_per_operation));
    run.operations.forEach((one) => [['service', ''], ['intended', ' (intended)'], ['failed_service', ' (failed)']].forEach(([part, suffix]) => {
      const latency = one[part];
      if (!latency) return;
      const isMain = part === 'service';
      rows.push([one.name + suffix, whole(latency.count), isMain && run.kind !== 'idle' ? whole(one.per_second) : NONE,
        ...(alone ? [isMain ? time(one.server_cpu_us_per_operation) : NONE] : []),
        ...['mean_us', 'p50_us', 'p90_us', 'p95_us', 'p99_us', 'p999_us', 'max_us'].map((name) => time(latency[name]))]);
    }));
    return table(['Operation', 'Count', 'Per second', ...(alone ? ['Server CPU'] : []), 'mean', 'p50', 'p90', 'p95', 'p99', 'p99.9', 'max'], rows);
  }

  function publishedCurves(run) {
    const base = baseline(run);
    if (!base) return [];
    return Object.entries(base.workload.latency_ms).filter(([, by]) => by[base.servers]).map(([name, by]) => {
      const [p50, p95, p99, p999, max] = by[base.servers].map((ms) => ms * 1000);
      return { label: `${name}, published`, curve: [[50, p50, 0], [95, p95, 0], [99, p99, 0], [99.9, p999, 0], [99.999, max, 1e5]].filter(([, us]) => us > 0) };
    });
  }

  function pictures(run) {
    const points = run.series.points.filter((point) => point.second >= 0);
    const seconds = points.map((point) => point.second);
    const grid = element('div', { class: 'charts' });
    const names = run.operations.map((one) => one.name);
    const of = (name, member) => points.map((point) => {
      const found = point.operations.find((one) => one.name === name);
      return found && found[member] > 0 ? found[member] : null;
    });
    if (points.length > 1) {
      const throughput = figure('Throughput', 'operations answered in each second');
      grid.append(throughput);
      charts.overTime(throughput, seconds, names.map((name) => ({ label: name, values: of(name, 'ok') })), short, false);
      const latency = figure('Latency over time', 'p99 of each second');
      grid.append(latency);
      charts.overTime(latency, seconds, names.map((name) => ({ label: `${name} p99`, values: of(name, 'p99_us') })), time, true);
    }
    const curves = run.operations.flatMap((one) => [['service', ''], ['intended', ' intended']].filter(([part]) => one[part] && one[part].curve.length)
      .map(([part, suffix]) => ({ label: one.name + suffix, curve: one[part].curve })));
    if (curves.length) {
      const spread = figure('Percentiles', 'each step to the right is one more nine; the last point is the maximum');
      grid.append(spread);
      charts.percentiles(spread, curves, publishedCurves(run));
    }
    if (points.length > 1 && points.some((point) => point.server_cpu_share !== null)) {
      const cpu = figure('CPU', 'cores in use');
      grid.append(cpu);
      charts.overTime(cpu, seconds, [
        { label: 'servers', values: points.map((point) => point.server_cpu_share) },
        { label: 'client', values: points.map((point) => point.client_cpu_share) },
      ], short, false);
    }
    return grid;
  }

  function pairs(object) {
    return Object.entries(object).map(([name, value]) => [name, element('code', {}, value === null ? 'null' : String(value))]);
  }

  function fold(name, ...children) {
    return element('details', {}, element('summary', {}, name), ...children);
  }

  function section(run, i) {
    main.append(element('h2', { id: `run-${i}` }, title(run)));
    const isIdle = run.kind === 'idle';
    const circumstances = isIdle ? 'of rest' : `of warm-up, ${run.loop.kind} loop`;
    main.append(element('p', { class: 'soft' }, `${run.started_at}, ${number(run.time.measured_seconds)} s measured after ${number(run.time.warmup_seconds)} s ${circumstances}`));
    run.alarms.forEach((alarm) => main.append(element('div', { class: 'alarm', role: 'note' }, element('strong', {}, alarm.kind), `: ${alarm.message}`)));
    run.checks.forEach((check) => main.append(element('p', {}, `${check.ok ? '✓' : '✗'} ${check.name}: ${exact(check.found)} found, ${exact(check.expected)} expected (${check.source})`)));
    if (hasFigures(run)) main.append(table(FIGURE_HEAD, figureRows(run)));
    main.append(isIdle ? factList(idleUse(run)) : facts(run), operations(run), pictures(run), ...eachServer(run));
    if (run.runs.length) main.append(fold('Single timings', table(['Run', 'Time', 'Server CPU', 'Answer'], run.runs.map((one, n) => [n + 1, time(one.ms * 1000), one.server_cpu_ms === null ? NONE : time(one.server_cpu_ms * 1000), whole(one.answer)]))));
    if (run.errors.length) main.append(element('h3', {}, 'Errors'), table(['Operation', 'Count', 'Kind', 'First message'], run.errors.map((one) => [one.operation, whole(one.count), one.kind, element('span', {}, one.first_message)])));
    run.notes.forEach((note) => main.append(element('p', { class: 'soft' }, note)));
    main.append(fold('Settings, command and machine',
      element('p', {}, element('code', {}, run.command.join(' '))),
      table(['Setting', 'Value'], pairs({ seed: run.seed, ...run.settings })),
      element('h3', {}, 'Machine and versions'),
      table(['', ''], pairs({ ...run.machine, ...run.versions }))));
  }

  function subtitle() {
    const first = runs[0];
    if (!first && !sweeps.length) return 'No results.';
    if (!first) return `${sweeps.length} ${sweeps.length === 1 ? 'sweep' : 'sweeps'}.`;
    const { machine, versions } = first;
    return `${runs.length} ${runs.length === 1 ? 'run' : 'runs'} from ${first.started_at} to ${runs[runs.length - 1].ended_at} on ${machine.cores} × ${machine.cpu_model}, ${bytes(machine.memory_bytes)}, ${machine.kernel}; server ${versions.server || 'unknown'}`;
  }

  function theme() {
    const root = document.documentElement;
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    charts.redraw();
  }

  document.getElementById('subtitle').textContent = subtitle();
  document.getElementById('theme').addEventListener('click', theme);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', charts.redraw);
  skipped.forEach((why) => main.append(element('div', { class: 'alarm', role: 'note' }, element('strong', {}, 'left out'), `: ${why}`)));
  const tools = { element, table, figure, whole, number, exact, bytes, fold, pairs, published, link };
  sweeps.forEach((sweep) => main.append(...sweepPart(sweep, tools)));
  const sessions = new Set(runs.filter((run) => run.units).map((run) => run.units.session));
  sessions.forEach((session) => main.append(...unitsPart(runs.filter((run) => run.units && run.units.session === session), tools)));
  const articles = runs.filter((run) => run.kind === 'wiki');
  if (articles.length) main.append(...wikiPart(articles, tools));
  summary();
  idleClusters();
  changefeeds();
  comparison();
  runs.forEach(section);
  main.append(element('footer', {}, 'Made by rekindle bench report. The page needs no network; charts by uPlot (MIT licence).'));
})();

// The section of a report about the tests of one `bench units`. `tools` are helper functions of the report.
'use strict';

const unitsPart = (tests, tools) => {
  const { element, table, figure, whole, exact, bytes, link } = tools;
  const { short } = charts;
  const known = (value) => value !== null && value !== undefined;
  const ratio = (value) => (known(value) ? value.toFixed(2) : '–');
  const perSecond = (value) => (known(value) ? value.toFixed(1) : '–');
  const { factor, core_share: share, session } = tests[0].units;

  // The total of units, and the units per node with equal nodes grouped: 6 = 2 × 1 + 2 × 2.
  function dealt(unitsByNode) {
    const parts = [];
    unitsByNode.forEach((units) => {
      const last = parts[parts.length - 1];
      if (last && last.units === units) last.nodes += 1;
      else parts.push({ units, nodes: 1 });
    });
    const all = unitsByNode.reduce((sum, units) => sum + units, 0);
    return `${all} = ${parts.map(({ units, nodes }) => `${nodes} × ${units}`).join(' + ')}`;
  }

  function rates() {
    const head = ['Test', 'Nodes', 'Units, by nodes', 'Blocks/s', `Published / ${factor}`, 'Transactions/s', 'By test 1', 'expected', 'published', 'Variation', 'Worst second', 'Last third by first', 'Errors'];
    const rows = tests.map((run) => {
      const { units, stability } = run;
      const transactions = run.throughput.units.find((unit) => unit.name === 'transactions');
      const steady = stability || {};
      return [link(run, units.test), units.nodes, dealt(units.units_by_node), perSecond(run.throughput.operations_per_second), perSecond(units.published_per_second), transactions ? whole(transactions.per_second) : '–',
        ratio(units.by_test_1), ratio(units.expected_by_test_1), ratio(units.published_by_test_1), ratio(steady.variation), ratio(steady.lowest_share), ratio(steady.last_by_first),
        whole(run.errors.reduce((sum, error) => sum + error.count, 0))];
    });
    return table(head, rows);
  }

  function courses() {
    const grid = element('div', { class: 'charts' });
    tests.forEach((run) => {
      const points = run.series.points.filter((point) => point.second >= 0);
      if (points.length < 2) return;
      const drawn = figure(run.units.test, 'blocks in each second, and their mean');
      grid.append(drawn);
      const mean = points.reduce((sum, point) => sum + point.ok, 0) / points.length;
      charts.overTime(drawn, points.map((point) => point.second), [
        { label: 'blocks', values: points.map((point) => point.ok) },
        { label: 'mean', values: points.map(() => mean) },
      ], short, false);
    });
    return grid;
  }

  function disks() {
    const rows = tests.flatMap((run) => run.units.disk.map((disk) => {
      const blocks = run.throughput.operations;
      const perBlock = known(disk.written_bytes) && blocks > 0 ? disk.written_bytes / blocks : null;
      return [`${run.units.test}: ${disk.role}`, disk.nodes.length, bytes(disk.written_bytes), bytes(perBlock), bytes(disk.grown_bytes)];
    }));
    return table(['Nodes that hold', 'Nodes', 'Written', 'Written per block', 'Data folders grew by'], rows);
  }

  // Checks of single published tests first, then the checks after every test.
  function statements() {
    const text = (said) => element('span', {}, said);
    const after = new Set(tests[0].checks.map((check) => check.name));
    const row = (run, one, verdict) => [text(`${run.units.test}: ${one.name}`), exact(one.found), exact(one.expected), text(verdict)];
    const checked = (wanted) => tests.flatMap((run) => [
      ...run.checks.filter((check) => after.has(check.name) !== wanted).map((check) => row(run, check, check.ok ? '✓ pass' : '✗ FAIL')),
      ...(wanted ? run.units.untold : []).map((one) => row(run, one, `not verified: ${one.why}`)),
    ]);
    return table(['Check', 'Found', 'Expected', ''], [...checked(true), ...checked(false)]);
  }

  const alarms = tests.flatMap((run) => run.alarms.map((alarm) => element('div', { class: 'alarm', role: 'note' }, element('strong', {}, `${run.units.test}: ${alarm.kind}`), `: ${alarm.message}`)));
  const nodes = known(share) ? `Each node had ${(share * 100).toFixed(0)} % of one core.` : 'Nodes had no equal shares of processor time.';
  return [element('h2', {}, 'BigchainDB\'s tests'),
    element('p', { class: 'soft' }, `${session}: nodes and shards of the published tests divided by ${factor}, with the same number of write units per node, each test on a new cluster. ${nodes} Compare only the ratios to test 1.`),
    ...alarms, rates(),
    element('p', { class: 'soft' }, 'Expected is in proportion to the write units, published is the figure that BigchainDB measured. Variation is the standard deviation of the blocks per second divided by their mean; the worst second is divided by the mean; the last third of the run is divided by the first.'),
    courses(), element('h3', {}, 'Disks, by the replicas that nodes hold'), disks(),
    element('p', { class: 'soft' }, 'Written is the number of bytes that the nodes\' processes wrote while blocks were inserted. Before, the data folders contained no tables.'),
    element('h3', {}, 'Placement and other checks'), statements()];
};

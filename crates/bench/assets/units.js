// The part of a report that shows the tests of one `bench units`. `tools` are the report's own.
'use strict';

const unitsPart = (tests, tools) => {
  const { element, table, figure, whole, exact, bytes, link } = tools;
  const { short } = charts;
  const known = (value) => value !== null && value !== undefined;
  const ratio = (value) => (known(value) ? value.toFixed(2) : '–');
  const perSecond = (value) => (known(value) ? value.toFixed(1) : '–');
  const { factor, core_share: share, session } = tests[0].units;

  // All units and those of the nodes, alike ones together: 6 = 2 × 1 + 2 × 2.
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

  // What was published of single tests, then what must hold after each.
  function statements() {
    const text = (said) => element('span', {}, said);
    const after = new Set(tests[0].checks.map((check) => check.name));
    const row = (run, one, verdict) => [text(`${run.units.test}: ${one.name}`), exact(one.found), exact(one.expected), text(verdict)];
    const checked = (wanted) => tests.flatMap((run) => [
      ...run.checks.filter((check) => after.has(check.name) !== wanted).map((check) => row(run, check, check.ok ? '✓ pass' : '✗ FAIL')),
      ...(wanted ? run.units.untold : []).map((one) => row(run, one, `not told: ${one.why}`)),
    ]);
    return table(['What must hold', 'Found', 'Expected', ''], [...checked(true), ...checked(false)]);
  }

  const alarms = tests.flatMap((run) => run.alarms.map((alarm) => element('div', { class: 'alarm', role: 'note' }, element('strong', {}, `${run.units.test}: ${alarm.kind}`), `: ${alarm.message}`)));
  const nodes = known(share) ? `Each node had ${(share * 100).toFixed(0)} % of one core.` : 'Nodes had no equal shares of processor time.';
  return [element('h2', {}, 'BigchainDB\'s tests'),
    element('p', { class: 'soft' }, `${session}: nodes and shards of the published tests divided by ${factor}, each node with as many write units as there, each test on a cluster of its own. ${nodes} What may be compared is how tests relate to test 1.`),
    ...alarms, rates(),
    element('p', { class: 'soft' }, 'Expected is in proportion to the write units, published what BigchainDB measured. Variation is the standard deviation of the blocks of a second by their mean; the worst second is by that mean; the last third of the run is by the first.'),
    courses(), element('h3', {}, 'Disks, by what nodes hold of the table'), disks(),
    element('p', { class: 'soft' }, 'Written is what the nodes\' processes had the system write while blocks were inserted. Data folders were empty of tables before.'),
    element('h3', {}, 'Placement, and what else must hold'), statements()];
};

// The section of a report about `bench wiki`: the published figures beside the measured ones. `tools` are helper functions
// of the report.
'use strict';

const wikiPart = (runs, tools) => {
  const { element, table, whole, number, published, link } = tools;
  const { time } = charts;
  const report = published['terark-wikipedia-2017'];
  const TESTS = ['read', 'batch_read', 'read_write'];
  const known = (value) => value !== null && value !== undefined;
  const percent = (value) => (known(value) ? `${number(value)} %` : '–');
  const megabytes = (value) => (known(value) ? `${number(value)} MB` : '–');
  const value = (run, name) => ((run.figures || []).find((one) => one.name === name) || { value: null }).value;
  const loads = runs.filter((run) => !run.settings.test);
  const tests = runs.filter((run) => run.settings.test);
  const isSmall = (run) => known(run.settings.memory);
  const memory = (run) => (isSmall(run) ? 'small_memory' : 'in_memory');
  // The report's unit of batch_read is documents, and its latency that of a query divided by them.
  const rate = (run) => (run.settings.test === 'batch_read' ? run.throughput.units[0].per_second : run.throughput.operations_per_second);
  const factor = (run) => (run.settings.test === 'batch_read' ? report.batch_rows : 1);
  const reads = (run) => run.operations.reduce((most, one) => (one.name !== 'WRITE' && one.ok > (most ? most.ok : -1) ? one : most), null);

  function sizes() {
    const head = ['', 'Data folder without the log, of the rows', 'The same, of the JSON', 'zstd -3 in blocks of 16 KB, of the JSON', 'xz -9 of all, of the JSON', 'Written for each byte of JSON', 'Peak memory of the load'];
    const measured = loads.map((run) => [link(run), percent(value(run, 'data folder without the log, of the lines')), percent(value(run, 'data folder without the log, of the JSON')),
      percent(value(run, 'zstd -3 in blocks of 16 KB, of the JSON')), percent(value(run, 'xz -9 of all, of the JSON')),
      number(value(run, 'written to disk for each byte of JSON')), megabytes(value(run, 'peak memory of the load'))]);
    const stated = report.engines.map((engine) => [element('span', {}, `published: ${engine.name}`), percent(engine.disk_percent), '–', '–', '–', '–', '–']);
    return table(head, [...measured, ...stated]);
  }

  function rates() {
    const head = ['Test', 'Measured', 'Unit', ...report.engines.map((engine) => engine.name)];
    const rows = tests.map((run) => [link(run), whole(rate(run)), run.settings.test === 'batch_read' ? 'doc/s' : 'op/s',
      ...report.engines.map((engine) => whole(engine[memory(run)][run.settings.test].per_second))]);
    return table(head, rows);
  }

  function latencies() {
    const head = ['Latency of reads', 'Measured p95', 'p99', ...report.engines.flatMap((engine) => [`${engine.name}, p95`, 'p99'])];
    const rows = tests.map((run) => {
      const { service } = reads(run) || { service: {} };
      const stated = report.engines.map((engine) => engine[memory(run)][run.settings.test]);
      return [link(run), time(service.p95_us), time(service.p99_us), ...stated.flatMap((one) => [one.p95_us, one.p99_us].map((us) => time(us * factor(run))))];
    });
    return table(head, rows);
  }

  // The share of the rate that is left with little memory: it does not depend on the machine as rates do.
  function shares() {
    const rows = tests.filter(isSmall).map((run) => {
      const all = tests.find((other) => !isSmall(other) && other.settings.test === run.settings.test && other.label === run.label && other.versions.server === run.versions.server);
      const stated = report.engines.map((engine) => engine.small_memory[run.settings.test].per_second / engine.in_memory[run.settings.test].per_second);
      return [link(run), percent(all && rate(all) > 0 ? (rate(run) / rate(all)) * 100 : null), ...stated.map((share) => percent(share * 100)),
        percent(value(run, "documents, of the disk's own random reads")), megabytes(value(run, 'peak memory with the page cache'))];
    });
    if (!rows.length) return [];
    return [table(['Rate with little memory, of that with enough', 'Measured', ...report.engines.map((engine) => engine.name), 'Documents, of the disk\'s own random reads', 'Peak memory with the page cache'], rows)];
  }

  tests.sort((a, b) => isSmall(a) - isSmall(b) || TESTS.indexOf(a.settings.test) - TESTS.indexOf(b.settings.test));
  return [
    element('h2', {}, 'Articles: published and measured'),
    element('p', { class: 'soft' }, `${report.title}: ${report.setup}. Small memory here stands beside 24 GB there. Sizes and ratios can be compared; rates and latencies come from other machines and far more rows.`),
    sizes(), ...(tests.length ? [rates(), latencies()] : []), ...shares(),
  ];
};

// Tests of the texts on the page of a benchmark report.
'use strict';

const assert = require('node:assert');
const { test } = require('node:test');

const { page } = require('./page.js');

const latency = (us) => ({ count: 10, mean_us: us, p50_us: us, p90_us: us, p95_us: us, p99_us: us, p999_us: us, max_us: us, curve: [] });
const operation = (name, more) => ({ name, ok: 10, failed: 0, per_second: 5, service: latency(100), intended: null, failed_service: null, server_cpu_us_per_operation: null, ...more });
const server = (port, more) => ({ address: `127.0.0.1:${port}`, source: 'proc', cpu_seconds: 1, memory_bytes: 5e6, peak_memory_bytes: 6e6, written_bytes: 0, ...more });

// A result in the format of `docs/formats/bench-result.md`, with the members that the page reads.
function result(more) {
  return {
    kind: 'ycsb-run', name: 'a run', label: '', command: ['rekindle', 'bench', 'ycsb', 'run', 'a'], started_at: '', ended_at: '', published: null, seed: '1',
    settings: {}, notes: [], loop: { kind: 'closed', connections: 4, pipeline: 1, target_per_second: null }, time: { warmup_seconds: 1, measured_seconds: 10 },
    throughput: { operations: 10, operations_per_second: 1, units: [] }, operations: [], errors: [], series: { points: [] }, stability: null, units: null, runs: [],
    checks: [], servers: [server(28015)], log: null,
    cost: { server_cpu_us_per_operation: null, client_cpu_us_per_operation: null, written_bytes_per_operation: null }, machine: {}, versions: {}, alarms: [], ...more,
  };
}

const fit = { applies: false, why_not: 'too few sizes', lambda: null };
const point = (nodes) => ({ nodes, per_second: 10 * nodes, rounds: [], published: null, latency: [], by_node: [], alarms: [], server_cpu_us_per_operation: null, failed: 0 });
const series = (workload, name, base, sizes) => ({ workload, name, unit: 'operations/s', base_nodes: base, points: sizes.map(point), fit, published_fit: fit });
// A sweep in the format of `docs/formats/bench-sweep.md`, with the members that the page reads.
const sweep = (all) => ({ label: '', started_at: '', command: [], target: {}, quota: { core_share: null }, settings: {}, machine: {}, series: all, bars: [], notes: [], alarms: [] });

test('what each kind of operation costs the servers is shown where the mean of all kinds is not known', () => {
  const kinds = [operation('GET-LOCAL', { server_cpu_us_per_operation: 11.9 }), operation('UPDATE-TWO', { server_cpu_us_per_operation: 60.3, failed: 1, failed_service: latency(9) })];
  const { under } = page({ runs: [result({ kind: 'hop', name: 'A second server', operations: kinds, servers: [] })] });
  const hop = under('A second server');
  assert.equal(hop.facts['Server CPU per operation'], '11.9 µs to 60.3 µs');
  assert.deepEqual(hop.tables[0].map((row) => [row.Operation, row['Server CPU']]), [['GET-LOCAL', '11.9 µs'], ['UPDATE-TWO', '60.3 µs'], ['UPDATE-TWO (failed)', '–']]);
  assert.equal(under('All runs').tables[0][0]['CPU/op'], '11.9 µs to 60.3 µs');
});

test('kinds that did not run alone have no column', () => {
  const cost = { server_cpu_us_per_operation: 10, client_cpu_us_per_operation: 4, written_bytes_per_operation: 1 };
  const run = page({ runs: [result({ operations: [operation('READ')], cost })] }).under('a run');
  assert.equal(run.facts['Server CPU per operation'], '10 µs');
  assert.ok(!('Server CPU' in run.tables[0][0]));
});

test('an idle cluster shows what all its nodes use, and no rate', () => {
  const servers = [server(28015, { cpu_seconds: 0.5 }), server(28016, { cpu_seconds: 2, memory_bytes: 7e6 })];
  const settings = { tables: 16, shards: 2, replicas: 3 };
  const operations = [operation('TABLE-CREATE', { per_second: 0 }), operation('TABLE-STATUS', { per_second: 0 })];
  const { under } = page({ runs: [result({ kind: 'idle', name: 'Idle', servers, settings, operations })] });
  const idle = under('Idle');
  assert.deepEqual(idle.facts, { 'CPU of all 2 servers': '25 % of a core', 'CPU of the busiest': '20 % of a core', 'Memory of all servers': '12 MB', 'Memory of the largest': '7 MB' });
  assert.deepEqual(idle.tables[0].map((row) => row['Per second']), ['–', '–']);
  assert.deepEqual(idle.tables[1].map((row) => [row.Server, row.CPU, row.Memory]), [['127.0.0.1:28015', '5 % of a core', '5 MB'], ['127.0.0.1:28016', '20 % of a core', '7 MB']]);
  assert.equal(under('All runs').tables[0][0].Rate, '–');
  const [row] = under('Clusters without queries').tables[0];
  assert.deepEqual([row.Servers, row['Replicas of each'], row['CPU, all servers'], row['Memory, all servers']], ['2', '3', '25 % of a core', '12 MB']);
});

test('sums are unknown if one server was not watched', () => {
  const servers = [server(28015), server(28016, { cpu_seconds: null, memory_bytes: null, peak_memory_bytes: null })];
  const { facts } = page({ runs: [result({ kind: 'idle', name: 'Idle', servers })] }).under('Idle');
  assert.deepEqual(Object.values(facts), ['–', '–', '–', '–']);
});

test('the page recommends --http where the command has that flag and it would add figures', () => {
  const said = (words, source) => {
    const run = result({ operations: [operation('UPDATE')], command: ['/bin/rekindle', 'bench', ...words.split(' ')], servers: [server(28015, { source })] });
    return page({ runs: [run] }).under('All runs').tables[0][0]['Writes/fsync'];
  };
  assert.equal(said('ycsb run a', 'proc'), 'needs --http');
  assert.equal(said('blocks --units 4', 'none'), 'needs --http');
  assert.equal(said('units --no-quota', 'proc'), '–');
  assert.equal(said('sweep --nodes 1,2', 'proc'), '–');
  assert.equal(said('sweep --cluster a:1', 'none'), 'needs --http');
  assert.equal(said('sweep --cluster=a:1', 'none'), 'needs --http');
  assert.equal(said('sweep --cluster a:1', 'proc'), '–');
});

test('a sweep names the base of its speed-ups', () => {
  const said = (...all) => page({ sweeps: [sweep(all)] }).under('Sweep over cluster sizes').text;
  const c = (base, sizes) => series('c-sync', 'YCSB C, single', base, sizes);
  const a = (base, sizes) => series('a', 'YCSB A, two replicas, hard', base, sizes);
  const without = 'One node has no second replica: it is not the base of YCSB A, two replicas, hard.';
  assert.ok(said(a(4, [1, 4, 16]), c(1, [1, 4, 16])).includes(`Speed-up is relative to 1 node (YCSB C, single) and 4 nodes (YCSB A, two replicas, hard). ${without}`));
  assert.ok(said(a(2, [2, 4]), c(2, [2, 4])).includes('Speed-up is relative to 2 nodes. The published'));
  assert.ok(said(a(null, [1]), c(1, [1])).includes(`Speed-up is relative to 1 node (YCSB C, single). There is none for YCSB A, two replicas, hard. ${without}`));
  assert.ok(said(a(null, [1])).includes(`There is none for YCSB A, two replicas, hard. ${without}`));
});

test('the analytic query has one figure: documents by the mean time of its runs', () => {
  const runs = [{ ms: 100, server_cpu_ms: null, answer: 1 }, { ms: 300, server_cpu_ms: null, answer: 1 }];
  const throughput = { operations: 2, operations_per_second: 4.9, units: [{ name: 'documents', total: 2000, per_second: 4900 }] };
  const published = { report: 'rethinkdb-2.1.5', workload: 'analytic', servers: 1 };
  const { under } = page({ runs: [result({ kind: 'analytic', name: 'Analytic query', settings: { documents: 1000 }, runs, throughput, published })] });
  assert.equal(under('All runs').tables[0][0].Rate, '5,000 doc/s');
  assert.equal(under('Published and measured').tables[0][0].Measured, '5,000');
  const { facts } = under('Analytic query');
  assert.equal(facts['documents/s'], '5,000');
  assert.ok(!Object.values(facts).includes('4,900'));
});

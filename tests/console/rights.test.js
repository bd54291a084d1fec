// What users may do: the answers of the console are those of the driver, for users, rights and terms.
'use strict';

const assert = require('node:assert');
const { after, before, test } = require('node:test');

const { r, Server } = require('./harness.js');
const { login, Requests, Socket } = require('./wire.js');

const db = r.db('shop'), table = db.table('heroes'), system = r.db('rethinkdb');

// Each user has the rights of a round where its name says; the others are fixed.
const ALL = { read: true, write: true, config: true }, NONE = { read: false, write: false, config: false };
const USERS = {
  nowhere: () => [],
  everywhere: (rights) => [[r, rights]],
  database: (rights) => [[db, inside(rights)]],
  table: (rights) => [[table, inside(rights)]],
  otherTable: (rights) => [[db.table('villains'), inside(rights)]],
  otherDatabase: (rights) => [[r.db('attic'), inside(rights)]],
  exceptDatabase: (rights) => [[r, rights], [db, NONE]],
  exceptTable: (rights) => [[db, inside(rights)], [table, NONE]],
  onlyInTable: (rights) => [[r, NONE], [table, inside(rights)]],
  system: (rights) => [[r, ALL], [system, inside(rights)]],
};
const UNSET = { read: null, write: null, config: null, connect: null };
const inside = ({ connect: _, ...rights }) => rights;

const RIGHTS = [
  { read: null }, { read: true }, { write: true }, { config: true }, { connect: true }, { read: true, write: true },
  { read: true, config: true }, { write: true, config: true }, { ...ALL, connect: true }, { ...ALL, read: false },
  { ...ALL, write: false }, { ...ALL, config: false, connect: false },
];

// Their results are the same however often they run.
const TERMS = [
  r.expr(1), table.count(), table.get(1), table.orderBy({ index: 'id' }).limit(2), table.getAll('Ada', { index: 'name' }),
  table.insert({ id: 1 }), table.get(1).update({ name: 'Ada' }), table.get(99).delete(), table.filter({ id: 99 }).delete(),
  table.indexCreate('name'), table.indexDrop('none'), table.indexList(), table.config(), table.between(1, 3).count(), table.sync(),
  table.reconfigure({ shards: 1, replicas: 1, dryRun: true }), db.tableCreate('heroes'), db.tableDrop('none'), db.tableList(),
  r.dbCreate('shop'), db.config(), table.grant('nowhere', { read: null }), system.table('users').count(),
  system.table('table_config').count(), r.http('http://localhost:1/'),
];

let server;
const connections = {};

before(async () => {
  server = await new Server().start();
  for (const name of ['shop', 'attic']) await server.run(r.dbCreate(name));
  for (const name of ['heroes', 'villains']) await server.run(db.tableCreate(name));
  await server.run(table.insert([{ id: 1, name: 'Ada' }, { id: 2, name: 'Bo' }, { id: 3 }]));
  await server.run(table.indexCreate('name'));
  await server.run(table.indexWait());
  await Promise.all(Object.keys(USERS).map(async (user) => {
    await server.run(system.table('users').insert({ id: user, password: 'sesame' }));
    const driver = await server.connect(user, 'sesame');
    const headers = await login(server, user, 'sesame');
    connections[user] = { driver: answers(driver), socket: await Socket.open(server, headers), requests: await Requests.open(server, headers) };
  }));
});
after(async () => {
  for (const { driver, socket } of Object.values(connections)) { driver.close(); socket.close(); }
  await server.remove();
});

// The driver, with the responses as they come from the server; it changes them afterwards.
function answers(connection) {
  const waiting = new Map();
  const process = connection._processResponse.bind(connection);
  connection._processResponse = (response, token) => { waiting.get(token)?.(structuredClone(response)); process(response, token); };
  return {
    ask: (term) => new Promise((resolve) => { waiting.set(connection.nextToken, resolve); term.run(connection).catch(() => {}); }),
    close: () => connection.close({ noreplyWait: false }),
  };
}

// A response without its profile, which plain requests always have.
const plain = ({ p: _, ...response }) => response;

test('for users, rights and terms the console answers what the driver does', async () => {
  const admin = await server.connect();
  let cells = 0, refused = 0;
  for (const rights of RIGHTS) {
    for (const [user, grants] of Object.entries(USERS)) {
      // The places are the same in each round.
      for (const [place, granted] of grants({ ...UNSET, ...rights })) await place.grant(user, granted).run(admin);
    }
    await Promise.all(Object.entries(connections).map(async ([user, { driver, socket, requests }]) => {
      await Promise.all(TERMS.map(async (term) => {
        const json = JSON.stringify([1, term.build(), {}]);
        const [wanted, bySocket, byRequests] = (await Promise.all([driver.ask(term), socket.ask(json), requests.ask(json)])).map(plain);
        const where = `${term} by ${user} with ${JSON.stringify(rights)}`;
        assert.deepEqual(bySocket, wanted, where);
        assert.deepEqual(byRequests, wanted, `${where}, by requests`);
        cells += 1;
        if (/ReqlPermissionError|does not have the required/.test(JSON.stringify(wanted))) refused += 1;
      }));
    }));
  }
  await admin.close();
  assert.equal(cells, 3000);
  assert.ok(refused > 500 && refused < 2500, `${refused} of ${cells} refused`);
});

import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type FleetDatabase, type Node } from '../acceptance/support/fleet.ts';
import { newIdentity } from '../acceptance/support/identity.ts';
import { askAssign, connectInvite } from '../acceptance/support/parts.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';
import { freshDatabase } from '../support/database.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

/** Incident 32: what streams from the database is a hint, and nobody who watches depends on it. */
let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
beforeAll(async () => {
  database = await freshDatabase();
  proxy = await startProxy(database.url);
  proxy.deafen();
  fleet = await Fleet.start({ database, cells: [{}, {}], rewriteUrl: (url) => proxy.through(url) });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});

const everybody = (): Node[] => [fleet.director, ...fleet.cells];
const hearing = async ({ origin }: Node) =>
  total(await scrape(origin), 'orca_relay_doorbell_state', { state: 'hearing' });

test('incident 32: with the doorbell off everywhere hosts are seated, orders arrive, and a forced move ends the old seat', async () => {
  const { identity, grant, host } = await fleet.seat();
  const pair = await connectInvite(host);
  pair.phone.peer.send('through');
  expect((await pair.data.next()).data.toString()).toBe('through');

  const home = fleet.cellAt(grant.cellUrl);
  const other = fleet.cells.find(({ id }) => id !== home.id) as Node;
  const told = await fleet.seat();
  const drained = fleet.cellAt(told.grant.cellUrl);
  await database.query(`select relay_v1.set_admission($1, 'migration-only'), relay_v1.start_drain($1, 60000, 0)`, [
    drained.id,
  ]);
  await fleet.advance(12_000);
  await told.host.expect('drain');
  await database.query(`select relay_v1.cancel_drain($1), relay_v1.set_admission($1, 'general')`, [drained.id]);
  await fleet.advance(12_000);

  const regrant = await fleet.move({ identity, grant }, other, true);
  expect(regrant).toMatchObject({ cellUrl: other.origin, assignmentEpoch: 2 });
  expect((await host.peer.close()).code).toBe(4409);
  expect(await Promise.all(everybody().map(hearing))).toEqual([0, 0, 0]);
});

test('incident 32: with the database gone every process still says how it is', async () => {
  proxy.refuse();
  const identity = newIdentity();
  const token = await fleet.token(identity);
  await until(
    'the outage in the metrics of each',
    async () => {
      await fleet.advance(16_000);
      await askAssign(fleet.director.origin, token, identity);
      return Promise.all(
        everybody().map(async ({ origin }) =>
          (await scrape(origin))
            .filter(({ name, labels }) => name === 'orca_relay_database_calls_total' && labels.outcome !== 'ok')
            .reduce((sum, { value }) => sum + value, 0),
        ),
      );
    },
    (failed) => failed.every((count) => count > 0),
  );
});

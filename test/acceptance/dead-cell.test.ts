import { afterAll, afterEach, beforeAll, expect, inject, test } from 'vitest';
import { cellViews } from '../../contract/cell-views.ts';
import { readEvents } from '../support/event-source.ts';
import { addCutOffCell, type CutOffCell } from './support/cut-off.ts';
import { Fleet, type Node, type Seated } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { askAssign, askResolve, type Grant, type Granted, installDevice } from './support/parts.ts';
import { toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { readFull } from './support/seat-feed.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

/**
 * The death of a reserve cell, with real directors, cells and Postgres: x, in a region with two db cells that have room, and
 * three more elsewhere. Everybody reaches Postgres through `store`; the machine of x can be cut off by itself.
 */

let fleet: Fleet;
let store: TcpProxy;
let x: CutOffCell;
let others: Node[];
/** Seated on x while that was in db mode: it has a lease there. */
let leased: Seated;

const limit = { hardCap: 600, unobservedBound: 60 };
const OTHERS = ['us-central1', 'us-central1', 'asia-east2', 'asia-east2', 'asia-east2'];

beforeAll(async () => {
  store = await proxyBefore(inject('postgresUrl'));
  fleet = await Fleet.start({
    cells: OTHERS.map((region) => ({ region, limit })),
    directors: 0,
    tokenLifeSeconds: 3_600,
    rewriteUrl: (url) => store.through(url),
  });
  others = [...fleet.cells];
  x = await addCutOffCell(fleet, { id: 'x', limit });
  await x.node.start();
  await fleet.heard();
  for (let left = 2; left > 0; left -= 1) await (await fleet.addDirector()).start();
  [leased] = (await seatOnX(1)) as [Seated];
  await toReserve(fleet, 'x', { intakePerSec: 1_000, deadManTripSlots: 0 });
});
afterEach(async () => {
  store.restore();
  x.revive();
  await pass(20_000);
});
afterAll(async () => {
  await x?.stop();
  await fleet?.stop();
  await store?.stop();
});

const admission = (cells: readonly Node[], value: string) =>
  Promise.all(cells.map(({ id }) => fleet.database.query('select relay_v1.set_admission($1, $2)', [id, value])));

/** Hosts that x has taken in, and whose rows say so. */
async function seatOnX(count: number): Promise<Seated[]> {
  await admission(others, 'migration-only');
  const seated: Seated[] = [];
  while (seated.length < count) {
    const identity = newIdentity();
    const grant = await granted(identity);
    if (grant.cellUrl !== x.address) continue;
    seated.push({ identity, grant, host: await fleet.dial(identity, grant) });
  }
  for (const { identity } of seated) {
    await until(
      'its row',
      () => rowOf(identity),
      (row) => row !== undefined,
    );
  }
  await admission(others, 'general');
  return seated;
}

const ask = async (identity: HostIdentity, director = fleet.director): Promise<Granted> =>
  askAssign(director.origin, await fleet.token(identity), identity, { reconnect: true });

async function granted(identity: HostIdentity, director?: Node): Promise<Grant> {
  const asked = await until(
    'a place',
    () => ask(identity, director),
    ({ status }) => status === 200,
  );
  return asked.body as unknown as Grant;
}

const rowOf = async ({ relayHostId }: HostIdentity) =>
  (
    await fleet.database.query('select cell_id, epoch::int from relay.assignment where relay_host_id = $1', [
      relayHostId,
    ])
  )[0];
const movesOf = ({ relayHostId }: HostIdentity) =>
  fleet.database.query(
    `select from_cell, to_cell, epoch::int, rule from relay.change where kind = 'moved' and relay_host_id = $1`,
    [relayHostId],
  );
const moves = () => fleet.database.query(`select 1 from relay.change where kind = 'moved'`);
const ofDirector = async (name: string, labels: Record<string, string> = {}, director = fleet.director) =>
  total(await scrape(director.origin), name, labels);
const verdicts = (verdict: string) => ofDirector('orca_relay_dead_cell_verdicts_total', { verdict });

/** A poll each second, as in life. */
const pass = (ms: number) => fleet.advance(ms, 1_000);
const UNAVAILABLE = { status: 503, body: { error: 'relay_home_cell_unavailable' } };

/** Both directors' polls have failed for long enough; how long that takes in life is in the tests of the verdict itself. */
async function untilMoved(identity: HostIdentity): Promise<Grant> {
  const asked = await until(
    'a place elsewhere',
    () => ask(identity),
    ({ status, body }) => status === 200 && body.cellUrl !== x.address,
  );
  return asked.body as unknown as Grant;
}

test('18, 19, 22, 32, 33, 37, O21 the hosts of a dead cell that ask are elsewhere within a minute, each moved once; others stay', async () => {
  const seated = await seatOnX(5);
  const [one, raced, phoned, quiet, last] = seated as [Seated, Seated, Seated, Seated, Seated];
  const device = await installDevice(phoned.host);
  expect(await fleet.leases(leased.identity)).toMatchObject([{ cell_id: 'x', state: 'active' }]);
  const retained = await ofDirector('orca_relay_owner_map_entries', { kind: 'seats' });
  x.die();
  await pass(30_000);
  // its heartbeat may yet come
  expect((await ask(one.identity)).body).toMatchObject({ cellUrl: x.address, assignmentEpoch: 1 });
  await pass(17_000);
  await admission(others, 'migration-only');
  await until(
    'no room for it',
    () => ask(one.identity),
    ({ status, body }) => status === 503 && body.error === 'relay_capacity_exhausted',
  );
  expect(await rowOf(one.identity)).toEqual({ cell_id: 'x', epoch: 1 });
  expect(await moves()).toEqual([]);
  await admission(others, 'general');

  for (const { identity } of [one, leased]) {
    const grant = await untilMoved(identity);
    const cell = fleet.cellAt(grant.cellUrl);
    expect(grant.assignmentEpoch).toBe(2);
    expect(await rowOf(identity)).toEqual({ cell_id: cell.id, epoch: 2 });
    expect(await movesOf(identity)).toEqual([{ from_cell: 'x', to_cell: cell.id, epoch: 2, rule: 'dead-reserve' }]);
    expect(await fleet.leases(identity)).toMatchObject([{ cell_id: cell.id, epoch: 2, state: 'granted' }]);
    await fleet.dial(identity, grant);
  }
  // two dials race, at two directors
  const asked = await Promise.all(fleet.directors.map((director) => ask(raced.identity, director)));
  const places = asked.filter(({ status }) => status === 200).map(({ body }) => [body.cellUrl, body.assignmentEpoch]);
  expect(places.length).toBeGreaterThan(0);
  const [row] = [await rowOf(raced.identity)];
  for (const place of places) expect(place).toEqual([others.find(({ id }) => id === row?.cell_id)?.origin, 2]);
  expect(await movesOf(raced.identity)).toHaveLength(1);

  // its seats are held for as long as any other cell's
  expect(await ofDirector('orca_relay_owner_map_unavailable_total')).toBe(0);
  expect(await ofDirector('orca_relay_owner_map_entries', { kind: 'seats' })).toBeGreaterThanOrEqual(retained - 5);
  // a phone does not move its host, nor does a sweep
  await pass(20_000);
  expect(await ofDirector('orca_relay_owner_map_unavailable_total', { reason: 'retention_expired' })).toBe(1);
  expect((await askResolve(fleet.director.origin, phoned.identity.relayHostId, device.resumeToken)).status).toBe(503);
  for (const { identity } of [phoned, quiet]) expect(await rowOf(identity)).toEqual({ cell_id: 'x', epoch: 1 });

  await Promise.all(
    [phoned, quiet, last].map(async ({ identity }) => fleet.dial(identity, await untilMoved(identity))),
  );
  for (const { identity } of [leased, ...seated]) expect(await movesOf(identity)).toHaveLength(1);
  const found = await askResolve(fleet.director.origin, phoned.identity.relayHostId, device.resumeToken);
  expect(found.body.cellUrl).not.toBe(x.address);

  // 35, 40 it comes back
  const rows = await Promise.all(seated.map(({ identity }) => rowOf(identity)));
  x.revive();
  await pass(40_000);
  expect(await Promise.all(seated.map(({ identity }) => rowOf(identity)))).toEqual(rows);
  for (const { identity } of seated) {
    const [lease, ...more] = await fleet.leases(identity);
    expect([lease?.cell_id, more]).toEqual([(await rowOf(identity))?.cell_id, []]);
  }
  const there = await readFull(fleet, x.node);
  for (const { identity } of seated) {
    expect(there.full.map(({ relayHostId }) => relayHostId)).not.toContain(identity.relayHostId);
  }
});

test('20, 38 cut off from the directors alone, it keeps everybody: its heartbeat is there', async () => {
  const seated = await seatOnX(2);
  const before = (await moves()).length;
  x.link.refuse();
  await pass(65_000);
  for (const { identity } of seated) {
    expect((await ask(identity)).body).toMatchObject({ cellUrl: x.address, assignmentEpoch: 1 });
    expect(await rowOf(identity)).toEqual({ cell_id: 'x', epoch: 1 });
  }
  expect(await moves()).toHaveLength(before);
});

test('21 cut off from the database alone, it loses nobody: it answers the polls', async () => {
  const [one] = (await seatOnX(1)) as [Seated];
  const [before, answered] = [(await moves()).length, await verdicts('not-dead')];
  x.store.refuse();
  await pass(50_000);
  // so that the director does not answer from memory
  await admission([x.node], 'migration-only');
  await pass(3_000);
  expect(await ask(one.identity)).toMatchObject(UNAVAILABLE);
  await admission([x.node], 'general');
  expect(await verdicts('not-dead')).toBe(answered + 1);
  expect(await moves()).toHaveLength(before);
});

test('22b after an outage of the database nobody is judged until cells have been heard for a minute', async () => {
  const [one] = (await seatOnX(1)) as [Seated];
  x.die();
  store.refuse();
  await pass(60_000);
  store.restore();
  await until(
    'the database back',
    () => ask(one.identity),
    ({ body }) => body.error === 'relay_home_cell_unavailable',
  );
  await pass(45_000);
  expect(await ask(one.identity)).toMatchObject(UNAVAILABLE);
  expect(await rowOf(one.identity)).toEqual({ cell_id: 'x', epoch: 1 });
  await pass(20_000);
  await untilMoved(one.identity);
});

test('25 each reason to withhold keeps its hosts waiting, and they move 45 s after the disruption', async () => {
  const [one] = (await seatOnX(1)) as [Seated];
  const few = await fleet.addDirector({ ORCA_RELAY_SHADOW_SEAT_FEED_CELLS: 'x,c1,c2,c3,c4' });
  await few.start();
  const before = (await moves()).length;
  const withheld = (reason: string, director?: Node) =>
    until(
      `a verdict withheld for ${reason}`,
      async () => {
        expect(await ask(one.identity, director)).toMatchObject(UNAVAILABLE);
        return ofDirector('orca_relay_dead_cell_verdicts_total', { verdict: `withheld_${reason}` }, director);
      },
      (count) => count > 0,
    );
  await pass(3_000);
  const [near, , far] = others as [Node, Node, Node];
  const events = await readEvents(`${fleet.director.origin}/v1/admin/events`);
  x.die();
  await near.stop();
  await pass(48_000);
  await withheld('sample', few);
  await withheld('region');
  await far.stop();
  await withheld('fleet');
  const gauge = 'orca_relay_dead_cell_verdict_withheld';
  await until(
    'the gauge',
    () => ofDirector(gauge, { cell: 'x', reason: 'fleet' }),
    (value) => value === 1,
  );
  expect(await ofDirector(gauge)).toBe(1);
  const { cells, withheld: held } = cellViews.parse(
    await (await fetch(`${fleet.director.origin}/v1/admin/cells`)).json(),
  );
  expect(held).toMatchObject([{ cellId: 'x', reason: 'fleet', feedCells: 6, failing: 3, regionFeedCells: 3 }]);
  expect(held[0]?.forMs).toBeGreaterThan(0);
  expect(cells.find(({ cellId }) => cellId === 'x')).toMatchObject({ feed: 'unverifiable', verdict: 'withheld' });
  expect(cells.find(({ cellId }) => cellId === 'c2')).toMatchObject({ feed: 'live', verdict: 'not-dead' });
  expect(await moves()).toHaveLength(before);

  await Promise.all([near, far].map((node) => node.start()));
  await fleet.heard([near, far]);
  await pass(40_000);
  expect(await ask(one.identity)).toMatchObject(UNAVAILABLE);
  await pass(12_000);
  await untilMoved(one.identity);
  await few.stop();

  const told: string[] = [];
  while (told.at(-1) !== 'given: not-dead') {
    const { event, data } = await events.nextEvent();
    const { cellId, reason, verdict } = JSON.parse(data);
    if (cellId !== 'x') continue;
    if (event === 'verdict_withheld') told.push(`withheld: ${reason}`);
    if (event === 'verdict_given') told.push(`given: ${verdict}`);
  }
  events.close();
  expect(told.slice(0, 2)).toEqual(['withheld: region', 'withheld: fleet']);
});

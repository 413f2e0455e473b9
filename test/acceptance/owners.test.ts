import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { EVENTS, type EventData, type EventName } from '../../contract/events.ts';
import { type AccountWhereabouts, whereabouts } from '../../contract/whereabouts.ts';
import { hostDigest } from '../../server/log.ts';
import { freshDatabase } from '../support/database.ts';
import { type EventReader, readEvents } from '../support/event-source.ts';
import { Fleet, type FleetDatabase, type Node, type Seated } from './support/fleet.ts';
import type { HostIdentity } from './support/identity.ts';
import { askAssign, askResolve, connectPair, type Grant, installDevice } from './support/parts.ts';
import { toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { proxyBefore, type TcpProxy } from './support/tcp-proxy.ts';
import { until } from './support/wait.ts';

let database: FleetDatabase;
let proxy: TcpProxy;
let fleet: Fleet;
const readers: EventReader[] = [];

beforeAll(async () => {
  database = await freshDatabase();
  proxy = await proxyBefore(database.url);
  fleet = await Fleet.start({ database, cells: [{}, {}], directors: 2, rewriteUrl: (url) => proxy.through(url) });
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await database?.drop();
  }
});
afterEach(() => {
  proxy.restore();
  for (const reader of readers.splice(0)) reader.close();
});

async function find({ relayHostId }: HostIdentity, director = fleet.director): Promise<AccountWhereabouts | undefined> {
  const reply = await fetch(`${director.origin}/v1/admin/hosts/${relayHostId}`);
  return whereabouts.parse(await reply.json()).accounts[0];
}

const foundAs = (identity: HostIdentity, wanted: (found: AccountWhereabouts) => boolean, director?: Node) =>
  until(
    'where the host is',
    () => find(identity, director),
    (found) => found !== undefined && wanted(found),
  ) as Promise<AccountWhereabouts>;

const digestOf = ({ userId, relayHostId }: HostIdentity) => hostDigest(userId, relayHostId);

/** Seated, and its row says so. */
async function seated(): Promise<Seated & { cell: Node; other: Node }> {
  const it = await fleet.seat();
  const cell = fleet.cellAt(it.grant.cellUrl);
  await foundAs(it.identity, ({ row, owner }) => row?.epoch === it.grant.assignmentEpoch && owner?.saidBy === 'fresh');
  return { ...it, cell, other: fleet.cells.find(({ id }) => id !== cell.id) as Node };
}

async function again(identity: HostIdentity): Promise<Grant> {
  const asked = await until(
    'granted again',
    async () => askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true }),
    ({ status }) => status === 200,
  );
  return asked.body as unknown as Grant;
}

/** As an evacuation moves a host, without what makes the host go. Answers the new epoch. */
async function evacuate({ identity, grant, cell, other }: Awaited<ReturnType<typeof seated>>): Promise<number> {
  const epoch = grant.assignmentEpoch + 1;
  await database.query(
    `with moved as (
       update relay.assignment set cell_id = $2, epoch = $3 where relay_host_id = $1 returning user_id, relay_host_id
     )
     insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
     select 'moved', $4, $2, user_id, relay_host_id, $3, 'evacuated',
       jsonb_build_object('forced', false, 'retire_until', (extract(epoch from relay.now()) * 1000 + 60000)::bigint),
       relay.now()
     from moved`,
    [identity.relayHostId, other.id, epoch, cell.id],
  );
  return epoch;
}

async function order(text: string, values: unknown[]): Promise<void> {
  await database.query(`select ${text}`, values);
}

async function watch(director = fleet.director): Promise<EventReader> {
  const reader = await readEvents(`${director.origin}/v1/admin/events`);
  readers.push(reader);
  return reader;
}

/** Reads on to the next event of this name that is as wanted. */
async function next<N extends EventName>(
  reader: EventReader,
  name: N,
  wanted: (data: EventData<N>) => boolean = () => true,
): Promise<EventData<N>> {
  for (;;) {
    const { event, data } = await reader.nextEvent();
    if (event !== name) continue;
    const told = EVENTS[name].parse(JSON.parse(data)) as EventData<N>;
    if (wanted(told)) return told;
  }
}

describe('where a host is', () => {
  test('F7 its feed says so, also with Postgres away; what it left is remembered', async () => {
    const { identity, grant, cell, host } = await seated();
    proxy.refuse();
    const away = await until(
      'an answer without rows',
      () => find(identity),
      (found) => found?.row === null,
    );
    expect(away).toMatchObject({
      owner: { cellId: cell.id, epoch: grant.assignmentEpoch, cellUrl: cell.origin, saidBy: 'fresh', live: true },
      seats: [{ cellId: cell.id, epoch: grant.assignmentEpoch, state: 'active' }],
    });
    proxy.restore();
    host.peer.hangUp(1000, 'signed-out');
    const left = await foundAs(identity, ({ seats }) => seats.length === 0);
    expect(left.left[0]).toMatchObject({ cellId: cell.id, epoch: grant.assignmentEpoch });
  });

  test('O17, O18 a move by the database routes at every director before any feed shows it', async () => {
    const moving = await seated();
    const { identity, grant, cell, other } = moving;
    const epoch = await evacuate(moving);
    for (const director of fleet.directors) {
      const { owner, seats } = await foundAs(identity, ({ pending }) => pending !== null, director);
      expect(owner).toMatchObject({ cellId: other.id, epoch, saidBy: 'pending' });
      expect(seats).toMatchObject([{ cellId: cell.id, epoch: grant.assignmentEpoch }]);
    }
  });
});

describe('a doorbell that nobody hears', () => {
  test('O18 a move by another director routes within 5 s all the same', async () => {
    const moving = await seated();
    expect(proxy.stallListeners()).toBeGreaterThanOrEqual(fleet.directors.length);
    const epoch = await evacuate(moving);
    const startedAt = performance.now();
    await Promise.all(
      fleet.directors.map((director) =>
        foundAs(moving.identity, ({ owner }) => owner?.cellId === moving.other.id && owner.epoch === epoch, director),
      ),
    );
    expect(performance.now() - startedAt).toBeLessThan(5_000);
  });
});

describe('a phone', () => {
  test('F5 reaches its host on the cell where it sits while the ledger trails', async () => {
    const { identity, grant, cell, other, host } = await seated();
    const device = await installDevice(host);
    await database.query('revoke execute on function relay_v1.record_seats from relay_director');
    await order('relay_v1.set_admission($1, $2)', [cell.id, 'existing-only']);
    try {
      await until(
        'the director knows',
        async () =>
          total(await scrape(fleet.director.origin), 'orca_relay_cell_admission', {
            cell: cell.id,
            admission: 'existing-only',
          }),
        (value) => value === 1,
      );
      host.peer.hangUp(1000, 'signed-out');
      await foundAs(identity, ({ seats }) => seats.length === 0);
      const regrant = await again(identity);
      expect(regrant).toMatchObject({ cellUrl: other.origin, assignmentEpoch: grant.assignmentEpoch + 1 });
      const moved = await fleet.dial(identity, regrant);
      const found = await foundAs(identity, ({ owner }) => owner?.saidBy === 'fresh' && owner.cellId === other.id);
      expect(found.row).toMatchObject({ cellId: cell.id, epoch: grant.assignmentEpoch });
      for (const director of fleet.directors) {
        await foundAs(identity, ({ seats }) => seats.length > 0, director);
        const resolved = await askResolve(director.origin, identity.relayHostId, device.resumeToken);
        expect(resolved).toMatchObject({
          status: 200,
          body: { v: 1, cellUrl: other.origin, assignmentEpoch: regrant.assignmentEpoch },
        });
      }
      const pair = await connectPair(moved, device.resumeToken);
      pair.phone.peer.send('through');
      expect((await pair.data.next()).data.toString()).toBe('through');
    } finally {
      await database.query('grant execute on function relay_v1.record_seats to relay_director');
      await order('relay_v1.set_admission($1, $2)', [cell.id, 'general']);
    }
  });
});

describe('the arms of the event stream', () => {
  test('tell who connects and who leaves, by digest', async () => {
    const reader = await watch();
    const { cells } = await next(reader, 'hello');
    expect(cells.toSorted((a, b) => a.cellId.localeCompare(b.cellId))).toEqual(
      fleet.cells.map(({ id }) => ({ cellId: id, open: true })),
    );
    const { identity, grant, host } = await fleet.seat();
    const about = { cellId: fleet.cellAt(grant.cellUrl).id, host: digestOf(identity), epoch: grant.assignmentEpoch };
    expect(await next(reader, 'host_joined', (data) => data.host === about.host)).toEqual({
      ...about,
      at: expect.any(Number),
    });
    host.peer.hangUp(1000, 'signed-out');
    expect(await next(reader, 'host_left', (data) => data.host === about.host)).toMatchObject(about);
  });

  test('O5, O9 one closes with a reason, once, and opens again with a gap', async () => {
    const reader = await watch();
    const cell = await fleet.addCell({ id: 'passing' });
    await cell.start();
    await next(reader, 'cell_open', ({ cellId }) => cellId === cell.id);
    await cell.stop();
    await fleet.advance(62_000, 2_000);
    const { cells } = await next(await watch(), 'hello');
    expect(cells).toContainEqual({ cellId: cell.id, open: false, reason: 'retention_expired' });
    await fleet.advance(6_000, 2_000);
    await cell.start();
    const told: { event: string | undefined; reason?: string }[] = [];
    while (told.at(-1)?.event !== 'cell_gap') {
      const { event, data } = await reader.nextEvent();
      const { cellId, reason } = JSON.parse(data);
      if (cellId === cell.id) told.push({ event, ...(reason === undefined ? {} : { reason }) });
    }
    expect(told).toEqual([
      { event: 'cell_unavailable', reason: 'retention_expired' },
      { event: 'cell_open' },
      { event: 'cell_gap' },
    ]);
    await cell.stop();
  });
});

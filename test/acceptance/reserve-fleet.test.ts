import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { demote } from './support/booking.ts';
import { Fleet, type Node, type Seated } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { askAssign, askResolve, connectPair, type Grant, installDevice } from './support/parts.ts';
import { RawPhone } from './support/raw-phone.ts';
import { toReserve } from './support/reserve-mode.ts';
import { scrape, total } from './support/scrape.ts';
import { readFull } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
beforeAll(async () => {
  const limit = { hardCap: 600, unobservedBound: 60 };
  fleet = await Fleet.start({ cells: [{ limit }, { limit }] });
  for (const { id } of fleet.cells) await toReserve(fleet, id, { intakePerSec: 1_000 });
  await until('hosts placed by booking', placedByBooking, Boolean);
});
afterAll(() => fleet?.stop());

const steps = async (step: string) =>
  total(await scrape(fleet.director.origin), 'orca_relay_reserve_plan_total', { step });

async function placedByBooking(): Promise<boolean> {
  const identity = newIdentity();
  const before = await steps('book');
  const asked = await askAssign(fleet.director.origin, await fleet.token(identity), identity);
  return asked.status === 200 && (await steps('book')) > before;
}

/** The ledger follows a second behind. */
async function rowOf({ userId, relayHostId }: HostIdentity): Promise<unknown> {
  const [row] = await fleet.database.query(
    'select cell_id, epoch::int from relay.assignment where user_id = $1 and relay_host_id = $2',
    [userId, relayHostId],
  );
  return row ?? null;
}

async function recorded(identity: HostIdentity, cell: Node, epoch: number): Promise<void> {
  await until(
    'the row of its seat',
    () => rowOf(identity),
    (row) => JSON.stringify(row) === JSON.stringify({ cell_id: cell.id, epoch }),
  );
}

async function seatAndRecord(): Promise<Seated & { cell: Node; other: Node }> {
  const seated = await fleet.seat();
  const cell = fleet.cellAt(seated.grant.cellUrl);
  const other = fleet.cells.find(({ id }) => id !== cell.id) as Node;
  await recorded(seated.identity, cell, seated.grant.assignmentEpoch);
  return { ...seated, cell, other };
}

/** Once the director's interval for one host is over. */
async function again(identity: HostIdentity): Promise<Grant> {
  const asked = await until(
    'granted again',
    async () => askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true }),
    ({ status }) => status === 200,
  );
  return asked.body as unknown as Grant;
}

async function operate(call: string, values: string[]): Promise<void> {
  expect(await fleet.database.query(`select ${call} as answer`, values)).toEqual([{ answer: 'ok' }]);
}

/** It has read its flags, and the director has read its feed since. */
async function inReserveAgain(cell: Node): Promise<void> {
  await until(
    `${cell.id} in reserve mode again`,
    () => readFull(fleet, cell),
    ({ admitModeRaw }) => admitModeRaw === 'reserve',
  );
  const read = () => scrape(cell.origin).then((samples) => total(samples, 'orca_relay_seat_feed_pages_total'));
  const before = await read();
  await until('the director to see it', read, (pages) => pages >= before + 2);
}

async function seatIn(cell: Node, { relayHostId }: HostIdentity) {
  return (await readFull(fleet, cell)).full.find((seat) => seat.relayHostId === relayHostId);
}

describe('a fleet in reserve mode (89)', () => {
  test('a new host is booked, seated without a lease, and its row follows; phones find it', async () => {
    const { identity, grant, host } = await seatAndRecord();
    expect(grant.assignmentEpoch).toBe(1);
    expect(await fleet.leases(identity)).toEqual([]);
    const device = await installDevice(host);
    const resolved = await askResolve(fleet.director.origin, identity.relayHostId, device.resumeToken);
    expect(resolved).toMatchObject({ status: 200, body: { cellUrl: grant.cellUrl } });
    const pair = await connectPair(host, device.resumeToken);
    pair.phone.peer.hangUp();
  });

  test('89 a host that reconnects is answered from memory: no booking, no read', async () => {
    const { identity, grant, host } = await seatAndRecord();
    const before = { remembered: await steps('remember'), booked: await steps('book'), read: await steps('read-row') };
    host.drop();
    expect(await again(identity)).toMatchObject({ cellUrl: grant.cellUrl, assignmentEpoch: grant.assignmentEpoch });
    expect(await steps('remember')).toBe(before.remembered + 1);
    expect([await steps('book'), await steps('read-row')]).toEqual([before.booked, before.read]);
    await fleet.dial(identity, grant);
  });

  test('89 after its cell restarted a host is booked there again, at the epoch it had', async () => {
    const { identity, grant, cell } = await seatAndRecord();
    await cell.stop();
    await cell.start();
    await fleet.heard([cell]);
    await inReserveAgain(cell);
    const before = await steps('rebook');
    const back = await until(
      'the same place',
      () => again(identity),
      ({ cellUrl }) => cellUrl === grant.cellUrl,
    );
    expect(back.assignmentEpoch).toBe(grant.assignmentEpoch);
    expect(await steps('rebook')).toBeGreaterThan(before);
    await fleet.dial(identity, back);
  });

  test('89 a host whose seat was given up is booked elsewhere at a higher epoch, and is refused at the old one', async () => {
    const { identity, grant, host, cell, other } = await seatAndRecord();
    const seat = await seatIn(cell, identity);
    expect(await demote(fleet, cell, identity, { epoch: 1, joinedAt: 1 })).toBe('not-seated');
    expect(await demote(fleet, cell, identity, seat!)).toBe('demoted');
    expect(await demote(fleet, cell, identity, seat!)).toBe('already-demoted');
    expect((await seatIn(cell, identity))?.state).toBe('drain-only');
    await fleet.advance(60_000);
    expect(await host.peer.close()).toMatchObject({ code: 4409, reason: 'seated on a newer cell' });
    const page = await readFull(fleet, cell);
    expect(page.recentlyLeft).toContainEqual(
      expect.objectContaining({ relayHostId: identity.relayHostId, epoch: 1, closeCode: 4409 }),
    );
    const anew = await again(identity);
    expect(anew.cellUrl).toBe(other.origin);
    expect(anew.assignmentEpoch).toBeGreaterThan(grant.assignmentEpoch);
    await fleet.dial(identity, anew);
    await recorded(identity, fleet.cellAt(anew.cellUrl), anew.assignmentEpoch);
    await expect(fleet.dial(identity, grant)).rejects.toThrow(/4409/);
  });

  test('F7, F8 while its row trails the seat, phones are sent to the seat, let in there, and to nowhere else', async () => {
    const { identity, grant, host, cell, other } = await seatAndRecord();
    const device = await installDevice(host);
    await operate('relay_v1.set_admission($1, $2)', [cell.id, 'migration-only']);
    const locked = new pg.Client({ connectionString: fleet.database.url });
    await locked.connect();
    await locked.query('begin');
    await locked.query('select from relay.assignment where relay_host_id = $1 for update', [identity.relayHostId]);
    try {
      host.drop();
      const moved = await until(
        'booked on the other cell',
        () => again(identity),
        ({ cellUrl }) => cellUrl === other.origin,
      );
      expect(moved.assignmentEpoch).toBeGreaterThan(grant.assignmentEpoch);
      const there = await fleet.dial(identity, moved);
      await until(
        'the map to have it',
        () => askResolve(fleet.director.origin, identity.relayHostId, device.resumeToken),
        ({ status, body }) => status === 200 && body.cellUrl === other.origin,
      );
      const pair = await connectPair(there, device.resumeToken);
      pair.phone.peer.hangUp();
      const stale = await RawPhone.knock(cell.origin, identity.relayHostId, device.resumeToken);
      // The old seat was given up as soon as the new one was booked.
      expect((await stale.refused()).code).toBe(4503);
      expect(await rowOf(identity)).toEqual({ cell_id: cell.id, epoch: grant.assignmentEpoch });
      await locked.query('rollback');
      await recorded(identity, other, moved.assignmentEpoch);
    } finally {
      await locked.end();
      await operate('relay_v1.set_admission($1, $2)', [cell.id, 'general']);
    }
  });
});

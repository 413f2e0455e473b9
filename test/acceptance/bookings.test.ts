import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { signAssignmentLease } from '../../server/tokens.ts';
import { book, demote } from './support/booking.ts';
import { Fleet, type Node } from './support/fleet.ts';
import { type HostIdentity, newIdentity } from './support/identity.ts';
import { connectInvite, post } from './support/parts.ts';
import { refusal } from './support/peer.ts';
import { type HostDial, RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { toReserve } from './support/reserve-mode.ts';
import { directorToken, readFull, readSince } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
/** Reserve cells (the third has room for four sockets), the second in db mode, and a director that books nothing. */
beforeAll(async () => {
  fleet = await Fleet.start({
    cells: [{}, {}, { limit: { hardCap: 104, unobservedBound: 0 } }, {}],
    env: { ORCA_RELAY_RESERVE_PLACEMENT: 'off' },
  });
  await toReserve(fleet, 'c1');
  await toReserve(fleet, 'c3');
  await toReserve(fleet, 'c4', { ticketCheck: 'enforce' });
});
afterAll(() => fleet?.stop());

/** As a host that was granted this epoch there. */
const dial = (cell: Node, identity: HostIdentity, epoch: number, over: Partial<HostDial> = {}) =>
  fleet.dial(identity, { cellUrl: cell.origin, assignmentEpoch: epoch, lease: '' }, over);

async function seatByBooking(cell: Node, identity: HostIdentity, epoch: number): Promise<RawHost> {
  expect(await book(fleet, cell, identity, epoch)).toEqual({ outcome: 'ok' });
  return dial(cell, identity, epoch);
}

async function say(path: string, body: unknown) {
  const authorization = `Bearer ${await directorToken(fleet, fleet.cell())}`;
  return post(fleet.cell().origin, path, body, { authorization });
}

const reserve = (body: unknown) => say('/internal/reserve', body);
const wanted = () => {
  const { userId, relayHostId } = newIdentity();
  return { userId, relayHostId, epoch: 1, ttlMs: 30_000 };
};
const good = () => ({ v: 1, directorId: 'a-director', items: [wanted()] });
const item = (over: Record<string, unknown>) => ({ ...good(), items: [{ ...good().items[0], ...over }] });

describe('the door of a cell to directors (87)', () => {
  test.each<[string, () => unknown]>([
    ['no JSON', () => 'x'],
    ['no object', () => []],
    ['another version', () => ({ ...good(), v: 2 })],
    ['no name', () => ({ ...good(), directorId: undefined })],
    ['a name that is none', () => ({ ...good(), directorId: 'a director' })],
    ['too long a name', () => ({ ...good(), directorId: 'd'.repeat(65) })],
    ['a dry run that is no yes or no', () => ({ ...good(), dryRun: 1 })],
    ['an unknown member', () => ({ ...good(), extra: true })],
    ['no items', () => ({ ...good(), items: [] })],
    ['too many items', () => ({ ...good(), items: Array(65).fill(good().items[0]) })],
    ['an unknown member of an item', () => item({ extra: 1 })],
    ['no user', () => item({ userId: '' })],
    ['too long a user', () => item({ userId: 'u'.repeat(257) })],
    ['a host id that is none', () => item({ relayHostId: 'short' })],
    ['epoch 0', () => item({ epoch: 0 })],
    ['half an epoch', () => item({ epoch: 1.5 })],
    ['an epoch that JavaScript cannot keep', () => item({ epoch: 2 ** 53 })],
    ['no time', () => item({ ttlMs: 0 })],
    ['too much time', () => item({ ttlMs: 30_001 })],
    ['sticky that is no yes or no', () => item({ sticky: 'yes' })],
  ])('a booking with %s is 400', async (_what, body) => {
    expect(await reserve(body())).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  });

  test.each<[string, Record<string, unknown>]>([
    ['another version', { v: 2 }],
    ['no user', { userId: '' }],
    ['a host id that is none', { relayHostId: 'short' }],
    ['epoch 0', { epoch: 0 }],
    ['no time of joining', { joinedAt: undefined }],
    ['a time before all time', { joinedAt: -1 }],
    ['an unknown member', { extra: 1 }],
  ])('a demotion with %s is 400', async (_what, over) => {
    const { userId, relayHostId } = newIdentity();
    const body = { v: 1, userId, relayHostId, epoch: 1, joinedAt: 1, ...over };
    const answer = await say('/internal/demote', body);
    expect(answer).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  });

  test('64 hosts with long names fit by number and not by size: 413', async () => {
    const items = Array.from({ length: 64 }, () => ({ ...wanted(), userId: 'u'.repeat(256) }));
    expect(await reserve({ ...good(), items })).toMatchObject({ status: 413, body: { error: 'request_too_large' } });
    const long = { v: 1, ...wanted(), userId: 'u'.repeat(4_096), joinedAt: 1 };
    expect((await say('/internal/demote', long)).status).toBe(413);
  });

  test('nobody but a director of this fleet is heard, and only by the cell that it means', async () => {
    const [cell, other] = [fleet.cell(0), fleet.cell(1)];
    const tokens = [undefined, 'x', await directorToken(fleet, other), await fleet.token(newIdentity())];
    for (const token of tokens) {
      const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
      for (const path of ['/internal/reserve', '/internal/demote']) {
        expect(await post(cell.origin, path, good(), headers)).toMatchObject({
          status: 401,
          body: { error: 'invalid_token' },
        });
      }
    }
  });

  test('a director has no book', async () => {
    for (const path of ['/internal/reserve', '/internal/demote']) {
      expect(await post(fleet.director.origin, path, good())).toMatchObject({
        status: 404,
        body: { error: 'reserve_unavailable' },
      });
    }
    expect(await (await fetch(`${fleet.director.origin}/v1/admin/cell-seats`)).json()).toEqual({ error: 'cell_only' });
  });

  test('a cell in db mode books nothing and demotes nobody, but says what it would', async () => {
    const identity = newIdentity();
    expect(await book(fleet, fleet.cell(1), identity, 1)).toEqual({ outcome: 'off' });
    expect(await book(fleet, fleet.cell(1), identity, 1, { dryRun: true })).toEqual({ outcome: 'ok' });
    expect(await demote(fleet, fleet.cell(1), identity, { epoch: 1, joinedAt: 1 })).toBe('off');
  });
});

describe('87: bookings between sockets', () => {
  test('a booking is told to readers of the feed, seats nobody, and names its director in the join', async () => {
    const cell = fleet.cell();
    const before = await readFull(fleet, cell);
    const identity = newIdentity();
    expect(await book(fleet, cell, identity, 3)).toEqual({ outcome: 'ok' });
    expect(await book(fleet, cell, identity, 3)).toEqual({ outcome: 'seated-newer', epoch: 3 });
    expect(await book(fleet, cell, identity, 2, { sticky: true })).toEqual({ outcome: 'seated-newer', epoch: 3 });
    const booked = await readSince(fleet, cell, before);
    expect(booked.changes).toMatchObject([{ kind: 'reserve', epoch: 3, generation: 0, reservedBy: 'a-director' }]);
    expect(booked.counts.bookings).toBe(1);
    const host = await dial(cell, identity, 3);
    const joined = await readSince(fleet, cell, booked);
    expect(joined.changes).toMatchObject([{ kind: 'join', epoch: 3, generation: 1, reservedBy: 'a-director' }]);
    expect(joined.counts.bookings).toBe(0);
    expect(await fleet.leases(identity)).toEqual([]);
    host.drop();
  });

  test('a full cell promises nothing more, and lets in exactly those it promised to', async () => {
    const cell = fleet.cell(2);
    const [promised, late] = [Array.from({ length: 4 }, () => newIdentity()), newIdentity()];
    for (const identity of promised) expect(await book(fleet, cell, identity, 1)).toEqual({ outcome: 'ok' });
    expect(await book(fleet, cell, late, 1)).toEqual({ outcome: 'full' });
    const token = await fleet.token(late);
    const refused = refusal(RawHost.upgrade(late, { origin: cell.origin, epoch: 1, token }).then(({ peer }) => peer));
    expect(await refused).toMatchObject({ status: 503, body: '{"error":"relay_capacity_exhausted"}' });
    const hosts = await Promise.all(promised.map((identity) => dial(cell, identity, 1)));
    expect(await fleet.units(cell)).toBe(4);
    const [first] = hosts as [RawHost, ...RawHost[]];
    expect(await book(fleet, cell, first.identity, 1, { sticky: true })).toEqual({ outcome: 'ok' });
    const rebound = await dial(cell, first.identity, 1, { previous: first.previous });
    for (const host of [...hosts.slice(1), rebound]) host.drop();
    await fleet.advance(31_000);
    await until(
      'the cell empty',
      () => fleet.units(cell),
      (units) => units === 0,
    );
  });

  test('a phone finds a booked host that has no row yet', async () => {
    const host = await seatByBooking(fleet.cell(), newIdentity(), 3);
    const pair = await connectInvite(host);
    pair.data.send('through');
    expect((await pair.phone.peer.next()).data.toString()).toBe('through');
    host.drop();
  });
});

describe('a cell that lets hosts in by the lease they show', () => {
  const leaseFor = ({ userId, relayHostId }: HostIdentity, cell: Node, epoch: number) => {
    const seat = { userId, relayHostId, cellId: cell.id, cellUrl: cell.origin, epoch };
    return signAssignmentLease(fleet.signingKey, fleet.director.origin, seat, fleet.clock);
  };

  test('takes one that names it, the host and the epoch, with no booking and no row; elsewhere it is only looked at', async () => {
    const [here, there] = [fleet.cell(3), fleet.cell(0)];
    const identity = newIdentity();
    const show = async (cell: Node, lease: string) =>
      dial(cell, identity, 3, { headers: { 'x-orca-relay-assignment-lease': lease } }).then(
        () => 'seated',
        (error) => String(error),
      );
    for (const lease of ['', 'x', await leaseFor(identity, here, 4), await leaseFor(newIdentity(), here, 3)]) {
      expect(await show(here, lease)).toContain('4409');
    }
    expect(await show(there, await leaseFor(identity, there, 3))).toContain('4409');
    expect(await show(here, await leaseFor(identity, here, 3))).toBe('seated');
    expect(await fleet.leases(identity)).toEqual([]);
  });
});

describe('a seat that is outranked', () => {
  test('takes no phones from then on, keeps those it has for a minute, and is closed 4409 for good', async () => {
    const cell = fleet.cell();
    const identity = newIdentity();
    const host = await seatByBooking(cell, identity, 3);
    const pair = await connectInvite(host);
    const invite = await host.createInvite('another-device');
    const page = await readFull(fleet, cell);
    const seat = page.full.find(({ relayHostId }) => relayHostId === identity.relayHostId);
    if (seat === undefined) throw new Error('the host is not in the feed');
    // The seat that outranks it; without a row of it, the ledger would write this one.
    await fleet.database.query(
      `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
       values ($1, $2, 'c2', 4, relay.now())`,
      [identity.userId, identity.relayHostId],
    );
    expect(await demote(fleet, cell, identity, { ...seat, joinedAt: seat.joinedAt + 1 })).toBe('not-seated');
    expect(await demote(fleet, cell, identity, { ...seat, epoch: 2 })).toBe('not-seated');
    expect(await demote(fleet, cell, identity, seat)).toBe('demoted');
    expect(await demote(fleet, cell, identity, seat)).toBe('already-demoted');
    expect(await host.expect('drain')).toMatchObject({ graceMs: 60_000 });
    const refused = await RawPhone.knock(cell.origin, identity.relayHostId, invite.inviteToken);
    expect(await refused.peer.close()).toMatchObject({ code: 4503 });
    pair.data.send('still here');
    expect((await pair.phone.peer.next()).data.toString()).toBe('still here');
    await fleet.advance(61_000);
    expect(await host.peer.close()).toMatchObject({ code: 4409, reason: 'seated on a newer cell' });
    expect(await pair.phone.peer.close()).toMatchObject({ code: 4409, reason: 'host seated elsewhere' });
    const { changes } = await readSince(fleet, cell, page);
    const own = changes.filter(({ relayHostId }) => relayHostId === identity.relayHostId);
    expect(own.map(({ kind, closeCode }) => [kind, closeCode])).toEqual([
      ['drain-only', undefined],
      ['leave', 4409],
    ]);
    const options = { origin: cell.origin, epoch: 3, token: await fleet.token(identity) };
    const again = await RawHost.upgrade(identity, options);
    again.hello(options);
    expect(await again.peer.close()).toMatchObject({ code: 4409, reason: 'wrong assignment epoch' });
  });
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { askCell, bookingFor, bookSeats, connectTo, demote, dialTo, seatByBooking } from './support/bookings.ts';
import { Fleet } from './support/fleet.ts';
import { newIdentity } from './support/identity.ts';
import { connectInvite, post } from './support/parts.ts';
import { refusal } from './support/peer.ts';
import { RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { toReserve } from './support/reserve-mode.ts';
import { directorToken, readFull, readSince } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
/** A reserve cell with room for four sockets, one in db mode, and a director that books nothing. */
beforeAll(async () => {
  fleet = await Fleet.start({
    cells: [{}, {}, { limit: { hardCap: 104, unobservedBound: 0 } }],
    env: { ORCA_RELAY_RESERVE_PLACEMENT: 'off' },
  });
  await toReserve(fleet, 'c1');
  await toReserve(fleet, 'c3');
});
afterAll(() => fleet?.stop());

const reserve = (body: unknown) => askCell(fleet, fleet.cell(), '/internal/reserve', body);
const good = () => ({ v: 1, directorId: 'a-director', items: [bookingFor(newIdentity(), 1)] });
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
    const answer = await askCell(fleet, fleet.cell(), '/internal/demote', body);
    expect(answer).toMatchObject({ status: 400, body: { error: 'invalid_request' } });
  });

  test('64 hosts with long names fit by number and not by size: 413', async () => {
    const items = Array.from({ length: 64 }, () => ({ ...bookingFor(newIdentity(), 1), userId: 'u'.repeat(256) }));
    expect(await reserve({ ...good(), items })).toMatchObject({ status: 413, body: { error: 'request_too_large' } });
    const long = { v: 1, ...bookingFor(newIdentity(), 1), userId: 'u'.repeat(4_096), joinedAt: 1 };
    expect((await askCell(fleet, fleet.cell(), '/internal/demote', long)).status).toBe(413);
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
    const items = [bookingFor(identity, 1)];
    expect(await bookSeats(fleet, fleet.cell(1), items)).toEqual(['off']);
    expect(await bookSeats(fleet, fleet.cell(1), items, { dryRun: true })).toEqual(['ok']);
    expect(await demote(fleet, fleet.cell(1), { ...identity, epoch: 1, joinedAt: 1 })).toBe('off');
  });
});

describe('87: bookings between sockets', () => {
  test('a booking is told to readers of the feed, seats nobody, and names its director in the join', async () => {
    const cell = fleet.cell();
    const before = await readFull(fleet, cell);
    const identity = newIdentity();
    expect(await bookSeats(fleet, cell, [bookingFor(identity, 3)])).toEqual(['ok']);
    expect(await bookSeats(fleet, cell, [bookingFor(identity, 3)])).toEqual([['seated-newer', 3]]);
    expect(await bookSeats(fleet, cell, [bookingFor(identity, 2, { sticky: true })])).toEqual([['seated-newer', 3]]);
    const booked = await readSince(fleet, cell, before);
    expect(booked.changes).toMatchObject([{ kind: 'reserve', epoch: 3, generation: 0, reservedBy: 'a-director' }]);
    expect(booked.counts.bookings).toBe(1);
    const host = await connectTo(fleet, cell, identity, 3);
    const joined = await readSince(fleet, cell, booked);
    expect(joined.changes).toMatchObject([{ kind: 'join', epoch: 3, generation: 1, reservedBy: 'a-director' }]);
    expect(joined.counts.bookings).toBe(0);
    expect(await fleet.leases(identity)).toEqual([]);
    host.drop();
  });

  test('a full cell promises nothing more, and lets in exactly those it promised to', async () => {
    const cell = fleet.cell(2);
    const [one, two, three, four, five] = Array.from({ length: 5 }, () => newIdentity());
    const items = [one, two, three, four, five].map((identity) => bookingFor(identity as never, 1));
    expect(await bookSeats(fleet, cell, items)).toEqual(['ok', 'ok', 'ok', 'ok', 'full']);
    const stranger = await refusal(
      RawHost.upgrade(newIdentity(), await dialTo(fleet, cell, five as never, 1)).then(({ peer }) => peer),
    );
    expect(stranger).toMatchObject({ status: 503, body: '{"error":"relay_capacity_exhausted"}' });
    const hosts = await Promise.all([one, two, three, four].map((each) => connectTo(fleet, cell, each as never, 1)));
    expect(await fleet.units(cell)).toBe(4);
    expect(await bookSeats(fleet, cell, [bookingFor(one as never, 1, { sticky: true })])).toEqual(['ok']);
    const rebound = await connectTo(fleet, cell, one as never, 1, { previous: (hosts[0] as RawHost).previous });
    for (const host of [...hosts.slice(1), rebound]) host.drop();
    await fleet.advance(31_000);
    await until(
      'the cell empty',
      () => fleet.units(cell),
      (units) => units === 0,
    );
  });

  test('a phone finds a booked host that has no row yet', async () => {
    const host = await seatByBooking(fleet, fleet.cell(), newIdentity(), 3);
    const pair = await connectInvite(host);
    pair.data.send('through');
    expect((await pair.phone.peer.next()).data.toString()).toBe('through');
    host.drop();
  });
});

describe('a seat that is outranked', () => {
  test('takes no phones from then on, keeps those it has for a minute, and is closed 4409 for good', async () => {
    const cell = fleet.cell();
    const identity = newIdentity();
    const host = await seatByBooking(fleet, cell, identity, 3);
    const pair = await connectInvite(host);
    const invite = await host.createInvite('another-device');
    const page = await readFull(fleet, cell);
    const seat = page.full.find(({ relayHostId }) => relayHostId === identity.relayHostId);
    if (seat === undefined) throw new Error('the host is not in the feed');
    expect(await demote(fleet, cell, { ...seat, joinedAt: seat.joinedAt + 1 })).toBe('not-seated');
    expect(await demote(fleet, cell, { ...seat, epoch: 2 })).toBe('not-seated');
    expect(await demote(fleet, cell, seat)).toBe('demoted');
    expect(await demote(fleet, cell, seat)).toBe('already-demoted');
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
    const again = await RawHost.upgrade(identity, await dialTo(fleet, cell, identity, 3));
    again.hello(await dialTo(fleet, cell, identity, 3));
    expect(await again.peer.close()).toMatchObject({ code: 4409, reason: 'wrong assignment epoch' });
  });
});

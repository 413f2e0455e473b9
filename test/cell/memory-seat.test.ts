import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CLOSE, LIMITS } from '../../contract/index.ts';
import { activate } from '../../server/cell/activation.ts';
import { reactToChange } from '../../server/cell/change-reactions.ts';
import { ControlMessages } from '../../server/cell/control-messages.ts';
import { ControlSession } from '../../server/cell/control-session.ts';
import { demoteSeat } from '../../server/cell/demotion.ts';
import { groundOf, isExpected, type Shown } from '../../server/cell/hello-ground.ts';
import { sessionEffects } from '../../server/cell/session-effects.ts';
import type { Change } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { counted, startCore, type TestCore } from './support/core.ts';
import { MemorySocket } from './support/memory-socket.ts';

let database: FreshDatabase;
let core: TestCore;
let clock: HandClock;
let hosts = 0;

beforeAll(async () => {
  database = await freshDatabase();
  await database.query(`select relay_v1.register_cell('c1', 'http://c1.relay.test', 'us-central1', 10000)`);
});
afterAll(() => database.drop());
beforeEach(async () => {
  clock = new HandClock();
  await database.query('delete from relay.lease');
  await database.query('delete from relay.cell_runtime');
  core = startCore(database.urlFor('relay_cell'), clock);
  const { cellId: cell_id, incarnation, startedAt: started_at, region } = core.identity;
  const load = { enforced_units: 0, inclusion_watermark: 0 };
  const beat = { cell_id, incarnation, url: 'http://c1.relay.test', region, started_at, ready: true, load };
  expect(await core.db.call('heartbeat', beat)).toBe('ok');
  toMode('reserve', 1);
});
afterEach(async () => {
  core.modes.stop();
  core.orders.stop();
  core.leases.stop();
  core.book.void();
  await core.background.idle();
  await core.close();
});

const toMode = (admitMode: 'db' | 'reserve', generation: number, flags = {}) =>
  core.modes.follow({ flags: { ...flags, admitMode }, flags_generation: generation });

type Host = ReturnType<typeof newHost>;
interface Arrived {
  session: ControlSession;
  socket: MemorySocket;
  shown: Shown;
}

function newHost() {
  hosts += 1;
  return { userId: `user-${hosts}`, relayHostId: `host${String(hosts).padStart(12, '0')}` };
}

function book(host: Host, epoch: number, over: { ttlMs?: number; sticky?: boolean } = {}) {
  const item = { ...host, epoch, ttlMs: LIMITS.bookingTtlMs, ...over };
  return core.book.take({ v: 1, directorId: 'director-1', items: [item] })[0];
}

/** A host at its hello: what it shows is looked up as the cell does then. */
function arrive(host: Host, epoch: number): Arrived {
  const socket = new MemorySocket();
  const session = new ControlSession(core, sessionEffects(core, new ControlMessages(core)), {
    identity: { ...host, profileId: 'p', organizationId: null, expiresAt: clock.wallNow() + 86_400_000 },
    socket: socket.peer,
    capabilities: new Set(),
    watermark: 1,
  });
  return { session, socket, shown: { epoch, ticket: false, booking: core.book.find(host, epoch) ?? null } };
}

/** Its proof has landed. */
async function prove({ session, socket, shown }: Arrived, base: ControlSession | null = null): Promise<void> {
  const frame = { assignmentEpoch: shown.epoch, appVersion: '1', controlResumeSecret: base?.resumeSecret } as never;
  await activate(core, session, socket.peer, { frame, base, shown });
}

async function seatBooked(host: Host, epoch: number): Promise<Arrived> {
  expect(book(host, epoch)).toEqual({ outcome: 'ok' });
  const arrived = arrive(host, epoch);
  await prove(arrived);
  expect(core.seats.of(host)).toBe(arrived.session);
  return arrived;
}

const ground = (host: Host, epoch: number) => groundOf(core, host, core.modes.raw, arrive(host, epoch).shown);

const leasesOf = (host: Host) =>
  database.query(`select epoch::int, generation::int, state from relay.lease where relay_host_id = $1`, [
    host.relayHostId,
  ]);

async function giveRow(host: Host, epoch: number): Promise<void> {
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
     values ($1, $2, 'c1', $3, relay.now()) on conflict (user_id, relay_host_id) do update set epoch = excluded.epoch`,
    [host.userId, host.relayHostId, epoch],
  );
}

const told = () => {
  const page = core.seatLog.page({ incarnation: core.identity.incarnation, seq: 0 });
  if (!('changes' in page)) throw new Error('a full snapshot came instead');
  return page.changes.map(({ kind, epoch, reservedBy, closeCode }) => ({ kind, epoch, reservedBy, closeCode }));
};

function recorded(host: Host, to: string, epoch: number): Change {
  const { userId: user_id, relayHostId: relay_host_id } = host;
  const detail = { forced: true };
  return {
    id: 1,
    kind: 'recorded',
    from_cell: 'c1',
    to_cell: to,
    user_id,
    relay_host_id,
    epoch,
    rule: null,
    detail,
    at: 0,
  };
}

describe('88: a booked host takes its seat', () => {
  it('without a row and without a lease, and its join names who booked it', async () => {
    const host = newHost();
    const { session, socket } = await seatBooked(host, 3);
    expect(socket.frames('host-hello-ack')).toHaveLength(1);
    expect(core.leases.holds(session)).toBe(false);
    expect(await leasesOf(host)).toEqual([]);
    expect(told()).toEqual([
      { kind: 'reserve', epoch: 3, reservedBy: 'director-1', closeCode: undefined },
      { kind: 'join', epoch: 3, reservedBy: 'director-1', closeCode: undefined },
    ]);
    expect([core.book.size, core.units.reserved]).toEqual([0, 0]);
  });

  it('at its epoch only: another one is for the database, or shed', async () => {
    const host = newHost();
    book(host, 3);
    expect([2, 3, 4].map((epoch) => ground(host, epoch))).toEqual(['database', 'booking', 'database']);
  });

  it('once: a second socket that showed the same booking stands on the seat it made, and no longer once that is gone', async () => {
    const host = newHost();
    book(host, 3);
    const [first, second, third] = [arrive(host, 3), arrive(host, 3), arrive(host, 3)];
    await prove(first);
    await prove(second);
    expect(first.socket.closed).toMatchObject({ reason: 'replaced by a newer generation' });
    expect(core.seats.of(host)).toBe(second.session);
    expect(told().at(-1)).toMatchObject({ kind: 'join', reservedBy: undefined });
    second.session.end('moved');
    await prove(third);
    expect(third.socket.closed).toMatchObject({ code: CLOSE.WRONG_CELL });
    expect(await leasesOf(host)).toEqual([]);
  });

  it('also when its booking expired while it proved itself, and not when that was replaced', async () => {
    const late = newHost();
    book(late, 3, { ttlMs: 1_000 });
    const arrived = arrive(late, 3);
    clock.advance(LIMITS.challengeWindowMs);
    await prove(arrived);
    expect(core.seats.of(late)).toBe(arrived.session);

    const replaced = newHost();
    book(replaced, 3);
    const outdated = arrive(replaced, 3);
    book(replaced, 4);
    await prove(outdated);
    expect(outdated.socket.closed).toMatchObject({ code: CLOSE.WRONG_CELL });
  });

  it('and takes a lease after all if the cell has left reserve mode before its proof landed', async () => {
    const [known, unknown] = [newHost(), newHost()];
    const arrived = [known, unknown].map((host) => {
      book(host, 3);
      return arrive(host, 3);
    }) as [Arrived, Arrived];
    await giveRow(known, 3);
    toMode('db', 2);
    expect([core.book.size, core.units.enforced]).toEqual([0, 0]);
    await Promise.all(arrived.map((each) => prove(each)));
    expect(core.leases.holds(arrived[0].session)).toBe(true);
    expect(await leasesOf(known)).toMatchObject([{ epoch: 3, state: 'active' }]);
    expect(arrived[1].socket.closed).toMatchObject({ reason: 'assignment changed during host proof' });
  });

  it('its renewals ask nothing, and its end gives nothing up', async () => {
    const host = newHost();
    const { session, socket } = await seatBooked(host, 3);
    clock.advance(60_000);
    core.leases.renewAll();
    expect(socket.closed).toBeNull();
    session.end('auth-expired');
    await core.background.idle();
    expect(await counted(core, 'orca_relay_lease_releases_total')).toBe(0);
    expect(await counted(core, 'orca_relay_control_renewals_total')).toBe(0);
  });

  it('a host that was leased, and is back in a new generation from memory, gives the old lease up', async () => {
    const host = newHost();
    await giveRow(host, 3);
    toMode('db', 2);
    const before = arrive(host, 3);
    await prove(before);
    expect(await leasesOf(host)).toMatchObject([{ generation: 1 }]);
    toMode('reserve', 3);
    const again = arrive(host, 3);
    await prove(again);
    await core.background.idle();
    expect(core.seats.of(host)).toBe(again.session);
    expect(core.leases.unleased()).toEqual([again.session]);
    expect(await leasesOf(host)).toEqual([]);
  });

  it('a rebind keeps the lease that there is, and asks nobody', async () => {
    const host = newHost();
    await giveRow(host, 3);
    toMode('db', 2);
    const before = arrive(host, 3);
    await prove(before);
    toMode('reserve', 3);
    await giveRow(host, 4);
    const again = arrive(host, 3);
    await prove(again, before.session);
    expect(again.socket.frames('host-hello-ack')).toMatchObject([{ generation: 1 }]);
    expect(core.leases.holds(before.session)).toBe(true);
  });

  it('a host that rebinds to a seat from memory after the cell left reserve mode is leased by that', async () => {
    const host = newHost();
    const { session } = await seatBooked(host, 3);
    await giveRow(host, 3);
    toMode('db', 2);
    core.modes.reregistration.stop();
    const again = arrive(host, 3);
    await prove(again, session);
    expect(core.seats.of(host)).toBe(session);
    expect(core.leases.holds(session)).toBe(true);
  });
});

describe('88: a host that comes back', () => {
  it('is let in for 10 min at the epoch it left with, and not shed', async () => {
    const host = newHost();
    const { socket } = await seatBooked(host, 3);
    expect(ground(host, 3)).toBe('seat');
    socket.leave();
    clock.advance(LIMITS.orphanGraceMs);
    expect(core.seats.of(host)).toBeUndefined();
    expect([2, 3, 4].map((epoch) => ground(host, epoch))).toEqual(['database', 'seat', 'database']);
    expect(isExpected(core, host)).toBe(true);
    clock.advance(LIMITS.rejoinMs);
    expect(ground(host, 3)).toBe('seat');
    clock.advance(1);
    expect(ground(host, 3)).toBe('database');
    expect(isExpected(core, host)).toBe(false);
  });

  it('is a stranger once it was sent away, or the change log says where it belongs', async () => {
    const [drained, moved] = [newHost(), newHost()];
    (await seatBooked(drained, 3)).session.end('drained');
    expect([ground(drained, 3), isExpected(core, drained)]).toEqual(['database', false]);
    (await seatBooked(moved, 3)).session.end('auth-expired');
    expect(ground(moved, 3)).toBe('seat');
    reactToChange(core, recorded(moved, 'c2', 4));
    expect(ground(moved, 3)).toBe('database');
  });

  it('is expected at the door while it is booked, in reserve mode alone', async () => {
    const host = newHost();
    expect(isExpected(core, host)).toBe(false);
    book(host, 3);
    expect(isExpected(core, host)).toBe(true);
    toMode('db', 2);
    expect(isExpected(core, host)).toBe(false);
  });

  it.each(['reserve', 'leaving'])(
    'never takes a seat below the one it has by a row that trails (%s)',
    async (state) => {
      const host = newHost();
      await giveRow(host, 3);
      const old = arrive(host, 3);
      const newer = await seatBooked(host, 4);
      if (state === 'leaving') {
        toMode('db', 2);
        core.modes.reregistration.stop();
      }
      await prove(old);
      expect(old.socket.closed).toMatchObject({ code: CLOSE.WRONG_CELL });
      expect(core.seats.of(host)).toBe(newer.session);
      await core.background.idle();
      expect(await leasesOf(host)).toEqual([]);
    },
  );
});

describe('the change log and a seat from memory', () => {
  it('a record of this very seat leaves it alone; one of a newer seat elsewhere, or here, ends it', async () => {
    const [same, elsewhere, here] = [newHost(), newHost(), newHost()];
    const seats = [await seatBooked(same, 3), await seatBooked(elsewhere, 3), await seatBooked(here, 3)];
    reactToChange(core, recorded(same, 'c1', 3));
    reactToChange(core, recorded(elsewhere, 'c2', 4));
    reactToChange(core, recorded(here, 'c1', 4));
    expect(seats.map(({ socket }) => socket.closed?.reason)).toEqual([
      undefined,
      'assignment moved',
      'assignment moved',
    ]);
    reactToChange(core, recorded(same, 'c2', 2));
    expect(seats[0]?.socket.closed).toBeNull();
  });
});

describe('demotion (reserve-mode 1.2)', () => {
  const demote = (host: Host, { session }: Arrived, over = {}) =>
    demoteSeat(core, { v: 1, ...host, epoch: session.epoch, joinedAt: core.seatLog.joinedAt(session) ?? 0, ...over });

  it('stops phones at once, keeps those that are connected for 60 s, and closes 4409', async () => {
    const host = newHost();
    const arrived = await seatBooked(host, 3);
    expect(demote(host, arrived)).toBe('demoted');
    expect(arrived.session.takesPhones).toBe(false);
    expect(arrived.session.serving).toBe(true);
    expect(told().at(-1)).toMatchObject({ kind: 'drain-only', epoch: 3 });
    expect(arrived.socket.frames('drain')).toEqual([{ type: 'drain', graceMs: 60_000, recovery: 'resolve-director' }]);
    expect(core.lines).toContainEqual(expect.objectContaining({ event: 'orca_relay_cell_seat_demoted', epoch: 3 }));
    clock.advance(59_999);
    expect(arrived.socket.closed).toBeNull();
    expect(demote(host, arrived)).toBe('already-demoted');
    clock.advance(1);
    expect(arrived.socket.closed).toEqual({ code: 4409, reason: 'seated on a newer cell' });
    expect(told().at(-1)).toMatchObject({ kind: 'leave', closeCode: 4409 });
    expect(demote(host, arrived)).toBe('not-seated');
  });

  it.each<[string, (arrived: Arrived) => void]>([
    ['by its host', ({ socket }) => socket.leave(1000, 'signed-out')],
    [
      'by the network, and forgotten',
      ({ socket }) => {
        socket.leave();
        clock.advance(60_000);
      },
    ],
    ['for its token', ({ session }) => session.end('auth-expired')],
    ['by a drain', ({ session }) => session.end('drained')],
  ])(
    'a demoted seat that is closed %s leaves as 4409, and its host does not come back from memory',
    async (_how, close) => {
      const host = newHost();
      const arrived = await seatBooked(host, 3);
      demote(host, arrived);
      close(arrived);
      expect(core.seats.of(host)).toBeUndefined();
      expect(told().at(-1)).toMatchObject({ kind: 'leave', closeCode: 4409 });
      expect(ground(host, 3)).toBe('database');
    },
  );

  it('names one seat: another epoch or another join is not it; outside reserve mode it is off', async () => {
    const host = newHost();
    const arrived = await seatBooked(host, 3);
    const joinedAt = core.seatLog.joinedAt(arrived.session) ?? 0;
    expect(demote(host, arrived, { epoch: 2 })).toBe('not-seated');
    expect(demote(host, arrived, { joinedAt: joinedAt - 1 })).toBe('not-seated');
    expect(demote({ ...host, userId: 'another' }, arrived)).toBe('not-seated');
    expect(arrived.session.takesPhones).toBe(true);
    toMode('db', 2);
    expect(demote(host, arrived)).toBe('off');
    expect(arrived.session.takesPhones).toBe(true);
  });

  it('lets no socket of the host continue the seat, or take it anew by a row that is behind', async () => {
    const host = newHost();
    const arrived = await seatBooked(host, 3);
    await giveRow(host, 3);
    demote(host, arrived);
    arrived.session.refresh(arrived.session.identity);
    expect(arrived.session.state).toBe('drain-only');
    expect(arrived.session.rebindable(arrived.session.resumeSecret)).toBe(false);
    const again = arrive(host, 3);
    expect(groundOf(core, host, 'reserve', again.shown)).toBe('database');
    await prove({ ...again, shown: again.shown });
    expect(again.socket.closed).toMatchObject({ reason: 'assignment changed during host proof' });
    expect(core.seats.of(host)).toBe(arrived.session);
  });

  it('counts for nothing in the book (87), and makes way for a booking here at a higher epoch', async () => {
    const host = newHost();
    const arrived = await seatBooked(host, 3);
    expect(book(host, 3)).toEqual({ outcome: 'seated-newer', epoch: 3 });
    demote(host, arrived);
    const before = core.units.reserved;
    expect(book(host, 3, { sticky: true })).toEqual({ outcome: 'ok' });
    expect(core.units.reserved).toBe(before + 1);
    expect(book(host, 4)).toEqual({ outcome: 'ok' });
    expect(core.units.reserved).toBe(before + 1);
    const next = arrive(host, 4);
    await prove(next);
    expect(core.seats.of(host)).toBe(next.session);
    expect(next.session.demoted).toBe(false);
    clock.advance(60_000);
    expect(next.socket.closed).toBeNull();
  });

  it('of a host that has just left keeps it from rejoining at that epoch', async () => {
    const host = newHost();
    const arrived = await seatBooked(host, 3);
    const joinedAt = core.seatLog.joinedAt(arrived.session) ?? 0;
    arrived.session.end('auth-expired');
    expect(ground(host, 3)).toBe('seat');
    expect(demoteSeat(core, { v: 1, ...host, epoch: 3, joinedAt })).toBe('not-seated');
    expect(ground(host, 3)).toBe('database');
  });

  it('costs the host its phones earlier if it was told to leave earlier', async () => {
    const host = newHost();
    const arrived = await seatBooked(host, 3);
    arrived.session.drain(10_000, 'drained');
    expect(demote(host, arrived)).toBe('demoted');
    clock.advance(10_000);
    expect(arrived.socket.closed).toMatchObject({ code: CLOSE.DRAINING });
    expect(told().at(-1)).toMatchObject({ kind: 'leave', closeCode: 4409 });
  });
});

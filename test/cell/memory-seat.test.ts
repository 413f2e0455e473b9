import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CLOSE, LIMITS } from '../../contract/index.ts';
import { reactToChange } from '../../server/cell/change-reactions.ts';
import { isExpected } from '../../server/cell/hello-ground.ts';
import type { Change } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { type Arrived, type Host, newHost, ReserveCell } from './support/booked-host.ts';
import { counted, type TestCore } from './support/core.ts';

let database: FreshDatabase;
let cell: ReserveCell;
let core: TestCore;
let clock: HandClock;

beforeAll(async () => {
  database = await freshDatabase();
  await database.query(`select relay_v1.register_cell('c1', 'http://c1.relay.test', 'us-central1', 10000)`);
});
afterAll(() => database.drop());
beforeEach(async () => {
  clock = new HandClock();
  cell = await ReserveCell.start(database, clock);
  core = cell.core;
});
afterEach(() => cell.stop());

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
    const { session, socket } = await cell.seatBooked(host, 3);
    expect(socket.frames('host-hello-ack')).toHaveLength(1);
    expect(core.leases.holds(session)).toBe(false);
    expect(await cell.leasesOf(host)).toEqual([]);
    expect(cell.told()).toEqual([
      { kind: 'reserve', epoch: 3, reservedBy: 'director-1', closeCode: undefined },
      { kind: 'join', epoch: 3, reservedBy: 'director-1', closeCode: undefined },
    ]);
    expect([core.book.size, core.units.reserved]).toEqual([0, 0]);
  });

  it('at its epoch only: another one is for the database, or shed', async () => {
    const host = newHost();
    cell.book(host, 3);
    expect([2, 3, 4].map((epoch) => cell.ground(host, epoch))).toEqual(['database', 'booking', 'database']);
  });

  it('once: a second socket that showed the same booking stands on the seat it made, and no longer once that is gone', async () => {
    const host = newHost();
    cell.book(host, 3);
    const [first, second, third] = [cell.arrive(host, 3), cell.arrive(host, 3), cell.arrive(host, 3)];
    await cell.prove(first);
    await cell.prove(second);
    expect(first.socket.closed).toMatchObject({ reason: 'replaced by a newer generation' });
    expect(core.seats.of(host)).toBe(second.session);
    expect(cell.told().at(-1)).toMatchObject({ kind: 'join', reservedBy: undefined });
    second.session.end('moved');
    await cell.prove(third);
    expect(third.socket.closed).toMatchObject({ code: CLOSE.WRONG_CELL });
    expect(await cell.leasesOf(host)).toEqual([]);
  });

  it('also when its booking expired while it proved itself, and not when that was replaced', async () => {
    const late = newHost();
    cell.book(late, 3, { ttlMs: 1_000 });
    const arrived = cell.arrive(late, 3);
    clock.advance(LIMITS.challengeWindowMs);
    await cell.prove(arrived);
    expect(core.seats.of(late)).toBe(arrived.session);

    const replaced = newHost();
    cell.book(replaced, 3);
    const outdated = cell.arrive(replaced, 3);
    cell.book(replaced, 4);
    await cell.prove(outdated);
    expect(outdated.socket.closed).toMatchObject({ code: CLOSE.WRONG_CELL });
  });

  it('and takes a lease after all if the cell has left reserve mode before its proof landed', async () => {
    const [known, unknown] = [newHost(), newHost()];
    const arrived = [known, unknown].map((host) => {
      cell.book(host, 3);
      return cell.arrive(host, 3);
    }) as [Arrived, Arrived];
    await cell.giveRow(known, 3);
    cell.toMode('db', 2);
    expect([core.book.size, core.units.enforced]).toEqual([0, 0]);
    await Promise.all(arrived.map((each) => cell.prove(each)));
    expect(core.leases.holds(arrived[0].session)).toBe(true);
    expect(await cell.leasesOf(known)).toMatchObject([{ epoch: 3, state: 'active' }]);
    expect(arrived[1].socket.closed).toMatchObject({ reason: 'assignment changed during host proof' });
  });

  it('its renewals ask nothing, and its end gives nothing up', async () => {
    const host = newHost();
    const { session, socket } = await cell.seatBooked(host, 3);
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
    await cell.giveRow(host, 3);
    cell.toMode('db', 2);
    const before = cell.arrive(host, 3);
    await cell.prove(before);
    expect(await cell.leasesOf(host)).toMatchObject([{ generation: 1 }]);
    cell.toMode('reserve', 3);
    const again = cell.arrive(host, 3);
    await cell.prove(again);
    await core.background.idle();
    expect(core.seats.of(host)).toBe(again.session);
    expect(core.leases.unleased()).toEqual([again.session]);
    expect(await cell.leasesOf(host)).toEqual([]);
  });

  it('a rebind keeps the lease that there is, and asks nobody', async () => {
    const host = newHost();
    await cell.giveRow(host, 3);
    cell.toMode('db', 2);
    const before = cell.arrive(host, 3);
    await cell.prove(before);
    cell.toMode('reserve', 3);
    await cell.giveRow(host, 4);
    const again = cell.arrive(host, 3);
    await cell.prove(again, before.session);
    expect(again.socket.frames('host-hello-ack')).toMatchObject([{ generation: 1 }]);
    expect(core.leases.holds(before.session)).toBe(true);
  });

  it('a host that rebinds to a seat from memory after the cell left reserve mode is leased by that', async () => {
    const host = newHost();
    const { session } = await cell.seatBooked(host, 3);
    await cell.giveRow(host, 3);
    cell.toMode('db', 2);
    core.modes.reregistration.stop();
    const again = cell.arrive(host, 3);
    await cell.prove(again, session);
    expect(core.seats.of(host)).toBe(session);
    expect(core.leases.holds(session)).toBe(true);
  });
});

describe('88: a host that comes back', () => {
  it('is let in for 10 min at the epoch it left with, and not shed', async () => {
    const host = newHost();
    const { socket } = await cell.seatBooked(host, 3);
    expect(cell.ground(host, 3)).toBe('seat');
    socket.leave();
    clock.advance(LIMITS.orphanGraceMs);
    expect(core.seats.of(host)).toBeUndefined();
    expect([2, 3, 4].map((epoch) => cell.ground(host, epoch))).toEqual(['database', 'seat', 'database']);
    expect(isExpected(core, host)).toBe(true);
    clock.advance(LIMITS.rejoinMs);
    expect(cell.ground(host, 3)).toBe('seat');
    clock.advance(1);
    expect(cell.ground(host, 3)).toBe('database');
    expect(isExpected(core, host)).toBe(false);
  });

  it('is a stranger once it was sent away, or the change log says where it belongs', async () => {
    const [drained, moved] = [newHost(), newHost()];
    (await cell.seatBooked(drained, 3)).session.end('drained');
    expect([cell.ground(drained, 3), isExpected(core, drained)]).toEqual(['database', false]);
    (await cell.seatBooked(moved, 3)).session.end('auth-expired');
    expect(cell.ground(moved, 3)).toBe('seat');
    reactToChange(core, recorded(moved, 'c2', 4));
    expect(cell.ground(moved, 3)).toBe('database');
  });

  it('is expected at the door while it is booked, in reserve mode alone', async () => {
    const host = newHost();
    expect(isExpected(core, host)).toBe(false);
    cell.book(host, 3);
    expect(isExpected(core, host)).toBe(true);
    cell.toMode('db', 2);
    expect(isExpected(core, host)).toBe(false);
  });

  it.each(['reserve', 'leaving'])(
    'never takes a seat below the one it has by a row that trails (%s)',
    async (state) => {
      const host = newHost();
      await cell.giveRow(host, 3);
      const old = cell.arrive(host, 3);
      const newer = await cell.seatBooked(host, 4);
      if (state === 'leaving') {
        cell.toMode('db', 2);
        core.modes.reregistration.stop();
      }
      await cell.prove(old);
      expect(old.socket.closed).toMatchObject({ code: CLOSE.WRONG_CELL });
      expect(core.seats.of(host)).toBe(newer.session);
      await core.background.idle();
      expect(await cell.leasesOf(host)).toEqual([]);
    },
  );
});

describe('the change log and a seat from memory', () => {
  it('a record of this very seat leaves it alone; one of a newer seat elsewhere, or here, ends it', async () => {
    const [same, elsewhere, here] = [newHost(), newHost(), newHost()];
    const seats = [await cell.seatBooked(same, 3), await cell.seatBooked(elsewhere, 3), await cell.seatBooked(here, 3)];
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

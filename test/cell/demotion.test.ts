import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { CLOSE } from '../../contract/index.ts';
import { demoteSeat } from '../../server/cell/demotion.ts';
import { groundOf } from '../../server/cell/hello-ground.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { type Arrived, type Host, newHost, ReserveCell } from './support/booked-host.ts';
import type { TestCore } from './support/core.ts';

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

describe('demotion (reserve-mode 1.2)', () => {
  const demote = (host: Host, { session }: Arrived, over = {}) =>
    demoteSeat(core, { v: 1, ...host, epoch: session.epoch, joinedAt: core.seatLog.joinedAt(session) ?? 0, ...over });

  it('stops phones at once, keeps those that are connected for 60 s, and closes 4409', async () => {
    const host = newHost();
    const arrived = await cell.seatBooked(host, 3);
    expect(demote(host, arrived)).toBe('demoted');
    expect(arrived.session.takesPhones).toBe(false);
    expect(arrived.session.serving).toBe(true);
    expect(cell.told().at(-1)).toMatchObject({ kind: 'drain-only', epoch: 3 });
    expect(arrived.socket.frames('drain')).toEqual([{ type: 'drain', graceMs: 60_000, recovery: 'resolve-director' }]);
    expect(core.lines).toContainEqual(expect.objectContaining({ event: 'orca_relay_cell_seat_demoted', epoch: 3 }));
    clock.advance(59_999);
    expect(arrived.socket.closed).toBeNull();
    expect(demote(host, arrived)).toBe('already-demoted');
    clock.advance(1);
    expect(arrived.socket.closed).toEqual({ code: 4409, reason: 'seated on a newer cell' });
    expect(cell.told().at(-1)).toMatchObject({ kind: 'leave', closeCode: 4409 });
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
      const arrived = await cell.seatBooked(host, 3);
      demote(host, arrived);
      close(arrived);
      expect(core.seats.of(host)).toBeUndefined();
      expect(cell.told().at(-1)).toMatchObject({ kind: 'leave', closeCode: 4409 });
      expect(cell.ground(host, 3)).toBe('database');
    },
  );

  it('names one seat: another epoch or another join is not it; outside reserve mode it is off', async () => {
    const host = newHost();
    const arrived = await cell.seatBooked(host, 3);
    const joinedAt = core.seatLog.joinedAt(arrived.session) ?? 0;
    expect(demote(host, arrived, { epoch: 2 })).toBe('not-seated');
    expect(demote(host, arrived, { joinedAt: joinedAt - 1 })).toBe('not-seated');
    expect(demote({ ...host, userId: 'another' }, arrived)).toBe('not-seated');
    expect(arrived.session.takesPhones).toBe(true);
    cell.toMode('db', 2);
    expect(demote(host, arrived)).toBe('off');
    expect(arrived.session.takesPhones).toBe(true);
  });

  it('lets no socket of the host continue the seat, or take it anew by a row that is behind', async () => {
    const host = newHost();
    const arrived = await cell.seatBooked(host, 3);
    await cell.giveRow(host, 3);
    demote(host, arrived);
    arrived.session.refresh(arrived.session.identity);
    expect(arrived.session.state).toBe('drain-only');
    expect(arrived.session.rebindable(arrived.session.resumeSecret)).toBe(false);
    const again = cell.arrive(host, 3);
    expect(groundOf(core, host, 'reserve', again.shown)).toBe('database');
    await cell.prove({ ...again, shown: again.shown });
    expect(again.socket.closed).toMatchObject({ reason: 'assignment changed during host proof' });
    expect(core.seats.of(host)).toBe(arrived.session);
  });

  it('counts for nothing in the book (87) but that its epoch is past (89), and makes way for a booking here at a higher epoch', async () => {
    const host = newHost();
    const arrived = await cell.seatBooked(host, 3);
    expect(cell.book(host, 3)).toEqual({ outcome: 'seated-newer', epoch: 3 });
    demote(host, arrived);
    const before = core.units.reserved;
    expect(cell.book(host, 3, { sticky: true })).toEqual({ outcome: 'seated-newer', epoch: 4 });
    expect(core.units.reserved).toBe(before);
    expect(cell.book(host, 4)).toEqual({ outcome: 'ok' });
    expect(core.units.reserved).toBe(before + 1);
    const next = cell.arrive(host, 4);
    await cell.prove(next);
    expect(core.seats.of(host)).toBe(next.session);
    expect(next.session.demoted).toBe(false);
    clock.advance(60_000);
    expect(next.socket.closed).toBeNull();
  });

  it('of a host that has just left keeps it from rejoining at that epoch', async () => {
    const host = newHost();
    const arrived = await cell.seatBooked(host, 3);
    const joinedAt = core.seatLog.joinedAt(arrived.session) ?? 0;
    arrived.session.end('auth-expired');
    expect(cell.ground(host, 3)).toBe('seat');
    expect(demoteSeat(core, { v: 1, ...host, epoch: 3, joinedAt })).toBe('not-seated');
    expect(cell.ground(host, 3)).toBe('database');
  });

  it('costs the host its phones earlier if it was told to leave earlier', async () => {
    const host = newHost();
    const arrived = await cell.seatBooked(host, 3);
    arrived.session.drain(10_000, 'drained');
    expect(demote(host, arrived)).toBe('demoted');
    clock.advance(10_000);
    expect(arrived.socket.closed).toMatchObject({ code: CLOSE.DRAINING });
    expect(cell.told().at(-1)).toMatchObject({ kind: 'leave', closeCode: 4409 });
  });
});

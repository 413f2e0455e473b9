import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { activate } from '../../server/cell/activation.ts';
import { ControlMessages } from '../../server/cell/control-messages.ts';
import { ControlSession } from '../../server/cell/control-session.ts';
import type { EndCause } from '../../server/cell/control-states.ts';
import { sessionEffects } from '../../server/cell/session-effects.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { startCore, type TestCore } from './support/core.ts';
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
});
afterEach(async () => {
  core.orders.stop();
  core.drain.stop();
  core.leases.stop();
  await core.background.idle();
  await core.close();
});

interface Seated {
  session: ControlSession;
  socket: MemorySocket;
}

function newHost() {
  hosts += 1;
  return { userId: `user-${hosts}`, relayHostId: `host${String(hosts).padStart(12, '0')}` };
}

/** A host that proves itself here. */
async function seat(host = newHost(), epoch = 1, base: ControlSession | null = null): Promise<Seated> {
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
     values ($1, $2, 'c1', $3, relay.now()) on conflict (user_id, relay_host_id) do update set epoch = excluded.epoch`,
    [host.userId, host.relayHostId, epoch],
  );
  const socket = new MemorySocket();
  const session = new ControlSession(core, sessionEffects(core, new ControlMessages(core)), {
    identity: { ...host, profileId: 'p', organizationId: null, expiresAt: clock.wallNow() + 86_400_000 },
    socket: socket.peer,
    capabilities: new Set(),
    watermark: 1,
  });
  const frame = { assignmentEpoch: epoch, appVersion: '1', controlResumeSecret: base?.resumeSecret } as never;
  await activate(core, session, socket.peer, { frame, base, shown: null });
  return { session, socket };
}

function told(): (string | number)[][] {
  const page = core.seatLog.page({ incarnation: core.identity.incarnation, seq: 0 });
  if (!('changes' in page)) throw new Error('a full snapshot came instead');
  return page.changes.map(({ kind, generation, closeCode }) => [kind, generation, ...(closeCode ? [closeCode] : [])]);
}

describe('when a seat is given up (85)', () => {
  it('a closing socket stays seated until it is closed', async () => {
    const { session, socket } = await seat();
    socket.buffered = 1_000;
    session.end('moved');
    expect(socket.closed).toBeNull();
    expect(core.seats.of(session.host)).toBeUndefined();
    expect([core.seats.connected, core.seatLog.seats]).toEqual([0, 1]);
    socket.drain();
    expect(core.seatLog.seats).toBe(0);
    expect(told()).toEqual([
      ['join', 1],
      ['leave', 1, 4409],
    ]);
  });

  it('a host that is back before its old socket has closed does not leave', async () => {
    const old = await seat();
    old.socket.buffered = 1_000;
    old.session.end('moved');
    await seat(old.session.host, 2);
    old.socket.drain();
    expect(core.seatLog.seats).toBe(1);
    expect(told()).toEqual([
      ['join', 1],
      ['join', 2],
    ]);
  });

  it('a new generation takes the seat over from an open socket and from an orphan, and nobody leaves', async () => {
    const first = await seat();
    const second = await seat(first.session.host);
    expect(first.socket.closed?.code).toBe(4408);
    second.socket.leave();
    await seat(first.session.host);
    expect(told().map(([kind, generation]) => [kind, generation])).toEqual([
      ['join', 1],
      ['join', 2],
      ['join', 3],
    ]);
  });

  it('an orphan stays seated for its grace, and leaves as its socket was lost', async () => {
    const { socket, session } = await seat();
    socket.leave(1001, 'going');
    expect([core.seats.connected, core.seatLog.seats]).toEqual([0, 1]);
    clock.advance(29_999);
    expect(core.seatLog.seats).toBe(1);
    clock.advance(1);
    expect(told().at(-1)).toEqual(['leave', 1, 1001]);
    expect(core.seatLog.leaver(session.host)).toMatchObject({ epoch: 1, closeCode: 1001 });
  });

  it('a rebound orphan joins again, and was never away', async () => {
    const { socket, session } = await seat();
    socket.leave();
    clock.advance(1_000);
    await seat(session.host, 1, session);
    expect(told()).toEqual([
      ['join', 1],
      ['join', 1],
    ]);
  });

  it.each<[EndCause, number]>([
    ['moved', 4409],
    ['drained', 4503],
    ['lease-expired', 4503],
    ['stale-incarnation', 4503],
  ])('an orphan that is ended as %s leaves with %i all the same', async (cause, code) => {
    const { socket, session } = await seat();
    socket.leave();
    session.end(cause);
    expect(told().at(-1)).toEqual(['leave', 1, code]);
  });

  it('a host that was told to drain stays drain-only until its end, whoever closed its socket', async () => {
    const { socket, session } = await seat();
    session.drain(5_000, 'drained');
    socket.leave(1000, 'bye');
    clock.advance(4_999);
    expect(core.seatLog.seats).toBe(1);
    clock.advance(1);
    expect(told()).toEqual([
      ['join', 1],
      ['drain-only', 1],
      ['leave', 1, 4503],
    ]);
  });

  it('a host that signs out leaves at once', async () => {
    const { socket } = await seat();
    socket.leave(1000, 'signed-out');
    expect(told().at(-1)).toEqual(['leave', 1, 1000]);
  });
});

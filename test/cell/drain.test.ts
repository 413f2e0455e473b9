import fc from 'fast-check';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { activate } from '../../server/cell/activation.ts';
import { reactToChange } from '../../server/cell/change-reactions.ts';
import { ControlMessages } from '../../server/cell/control-messages.ts';
import { ControlSession } from '../../server/cell/control-session.ts';
import { sessionEffects } from '../../server/cell/session-effects.ts';
import type { Change } from '../../server/sql-interface.ts';
import { until } from '../acceptance/support/wait.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { HandClock } from '../support/hand-clock.ts';
import { counted, startCore, type TestCore } from './support/core.ts';
import { MemorySocket } from './support/memory-socket.ts';

const url = (cellId: string) => `http://${cellId}.relay.test`;
const ELSEWHERE = '00000000-0000-4000-8000-000000000000';
let database: FreshDatabase;
let core: TestCore;
let clock: HandClock;
let hosts = 0;

beforeAll(async () => {
  database = await freshDatabase();
  for (const id of ['c1', 'c2']) {
    await database.query('select relay_v1.register_cell($1, $2, $3, $4)', [id, url(id), 'us-central1', 10_000]);
  }
});
afterAll(() => database.drop());
beforeEach(async () => {
  clock = new HandClock();
  for (const table of ['lease', 'cell_runtime']) await database.query(`delete from relay.${table}`);
  await database.query(`update relay.cell set admission = 'migration-only', drain_incarnation = null,
    drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null, drain_hosts = null`);
  core = startCore(database.urlFor('relay_cell'), clock);
  expect(await beat()).toBe('ok');
});
afterEach(async () => {
  core.orders.stop();
  core.drain.stop();
  core.leases.stop();
  await core.background.idle();
  await core.close();
});

function beat() {
  const { cellId: cell_id, incarnation, startedAt: started_at, region } = core.identity;
  const load = { enforced_units: 0, inclusion_watermark: 0, ...core.drain.progress() };
  return core.db.call('heartbeat', { cell_id, incarnation, url: url('c1'), region, started_at, ready: true, load });
}

const order = async (graceMs: number, paceMs: number) => {
  await database.advanceClock(1);
  const [row] = await database.query('select relay_v1.start_drain($1, $2, $3) as answer', ['c1', graceMs, paceMs]);
  expect(row?.answer).toBe('ok');
};
const cancel = () => database.query('select relay_v1.cancel_drain($1)', ['c1']);

/** Reads the orders, and waits until the answer was taken in. */
async function readOrders(): Promise<void> {
  const seen = await counted(core, 'orca_relay_cell_order_reads_total');
  core.orders.read();
  await until(
    'the orders read',
    () => counted(core, 'orca_relay_cell_order_reads_total'),
    (now) => now > seen,
  );
}

interface Seated {
  session: ControlSession;
  socket: MemorySocket;
}

function arrive(host = newHost()): Seated {
  const socket = new MemorySocket();
  const session = new ControlSession(core, sessionEffects(core, new ControlMessages(core)), {
    identity: { ...host, profileId: 'p', organizationId: null, expiresAt: clock.wallNow() + 86_400_000 },
    socket: socket.peer,
    capabilities: new Set(),
    watermark: 1,
  });
  return { session, socket };
}

function newHost() {
  hosts += 1;
  return { userId: `user-${hosts}`, relayHostId: `host${String(hosts).padStart(12, '0')}` };
}

async function place({ userId, relayHostId }: ReturnType<typeof newHost>, epoch: number): Promise<void> {
  await database.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
     values ($1, $2, 'c1', $3, relay.now()) on conflict (user_id, relay_host_id) do update set epoch = excluded.epoch`,
    [userId, relayHostId, epoch],
  );
}

/** A host that proves itself here. */
async function seat(host = newHost(), epoch = 1): Promise<Seated> {
  await place(host, epoch);
  const arrived = arrive(host);
  const frame = { assignmentEpoch: epoch, appVersion: '1' } as never;
  await activate(core, arrived.session, arrived.socket.peer, { frame, base: null, shown: null });
  return arrived;
}

function moved({ session }: Seated, over: Partial<Change>): Change {
  const { userId: user_id, relayHostId: relay_host_id } = session.host;
  const base = { id: 1, kind: 'moved', from_cell: 'c1', to_cell: 'c2', user_id, relay_host_id, rule: 'r', at: 1_000 };
  return { ...base, epoch: session.epoch + 1, detail: null, ...over } as Change;
}

const told = (seated: Seated[]) => seated.filter(({ socket }) => socket.frames('drain').length > 0).length;
const leasesOf = ({ session }: Seated) =>
  database.query('select cell_id from relay.lease where relay_host_id = $1', [session.host.relayHostId]);

describe('a drain order (03, drains; wire 2.9)', () => {
  it('tells the hosts one after the other, evenly over the pace, and each is drain-only from its own turn on', async () => {
    const seated = [await seat(), await seat(), await seat(), await seat()];
    await order(30_000, 8_000);
    await readOrders();
    for (const step of [1, 2, 3, 4]) {
      expect(told(seated)).toBe(step);
      expect(seated.map(({ session }) => session.state)).toEqual(
        seated.map((_, index) => (index < step ? 'drain-only' : 'active')),
      );
      clock.advance(1_999);
      expect(told(seated)).toBe(step);
      clock.advance(1);
    }
    expect(seated.flatMap(({ socket }) => socket.frames('drain'))).toEqual(
      seated.map(() => ({ type: 'drain', graceMs: 30_000, recovery: 'resolve-director' })),
    );
  });

  it('closes each host 4503 a grace after its turn, gives its lease up, and reports when nobody is left', async () => {
    const seated = [await seat(), await seat()];
    await order(30_000, 10_000);
    await readOrders();
    expect(core.drain.progress()).toEqual({ drain_told: 1, drain_left: 2 });
    clock.advance(15_000);
    for (const { session } of seated) session.pong(0);
    clock.advance(14_999);
    expect(seated.map(({ socket }) => socket.closed)).toEqual([null, null]);
    clock.advance(1);
    expect(seated[0]?.socket.closed).toEqual({ code: 4503, reason: 'resolve configured director' });
    expect(seated[1]?.socket.closed).toBeNull();
    expect(core.reports).toBe(0);
    clock.advance(5_000);
    expect(seated[1]?.socket.closed?.code).toBe(4503);
    expect(core.reports).toBe(1);
    expect(core.drain.progress()).toEqual({ drain_told: 2, drain_left: 0 });
    await core.background.idle();
    for (const host of seated) expect(await leasesOf(host)).toEqual([]);
    expect(await beat()).toBe('ok');
    expect(await database.query('select told, "left", progress::float8 from relay_v1.drains')).toEqual([
      { told: 2, left: 0, progress: 1 },
    ]);
    expect(core.lines.filter(({ event }) => event === 'orca_relay_cell_drained')).toHaveLength(1);
  });

  it('for another process of the cell means nothing here', async () => {
    const host = await seat();
    await order(30_000, 0);
    await database.query('update relay.cell set drain_incarnation = $1 where drain_incarnation is not null', [
      ELSEWHERE,
    ]);
    await readOrders();
    core.drain.follow({ incarnation: ELSEWHERE, grace_ms: 0, pace_ms: 0, ordered_at: 1 });
    expect([core.drain.ordered, host.session.state, core.drain.progress()]).toEqual([false, 'active', {}]);
  });

  it('read again changes nothing', async () => {
    const seated = [await seat(), await seat()];
    await order(30_000, 10_000);
    await readOrders();
    clock.advance(6_000);
    await readOrders();
    expect(seated.map(({ socket }) => socket.frames('drain').length)).toEqual([1, 1]);
    clock.advance(24_000);
    expect(seated.map(({ socket }) => socket.closed === null)).toEqual([false, true]);
  });

  it('that is newer replaces the timers of the earlier one, and tells nobody twice', async () => {
    const seated = [await seat(), await seat()];
    await order(10_000, 60_000);
    await readOrders();
    expect(told(seated)).toBe(1);
    clock.advance(5_000);
    await order(40_000, 4_000);
    await readOrders();
    expect(core.drain.progress()).toEqual({ drain_told: 1, drain_left: 2 });
    clock.advance(2_000);
    expect(seated.map(({ socket }) => socket.frames('drain').map(({ graceMs }) => graceMs))).toEqual([
      [10_000],
      [40_000],
    ]);
    clock.advance(37_999);
    expect(seated.map(({ socket }) => socket.closed)).toEqual([null, null]);
    clock.advance(1);
    expect(seated.map(({ socket }) => socket.closed === null)).toEqual([false, true]);
    clock.advance(2_000);
    expect(seated[1]?.socket.closed?.code).toBe(4503);
  });

  it('that is cancelled leaves those alone who were not told, and lets hosts in again', async () => {
    const seated = [await seat(), await seat()];
    await order(30_000, 10_000);
    await readOrders();
    await cancel();
    await readOrders();
    expect([core.drain.ordered, core.drain.progress()]).toEqual([false, {}]);
    clock.advance(60_000);
    expect(seated.map(({ socket }) => socket.closed?.code ?? null)).toEqual([4503, null]);
    expect(seated[1]?.session.state).toBe('active');
    const back = await seat(seated[0]?.session.host);
    expect(back.session.state).toBe('active');
  });

  it('refuses a host that was still proving itself, 4503, and leaves it no lease', async () => {
    await order(30_000, 0);
    await readOrders();
    const late = await seat();
    expect(late.socket.closed).toEqual({ code: 4503, reason: 'relay draining' });
    expect(await leasesOf(late)).toEqual([]);
  });

  it('that comes while the database is asked refuses the host too', async () => {
    const proving = seat();
    core.drain.follow({ incarnation: core.identity.incarnation, grace_ms: 1_000, pace_ms: 0, ordered_at: 1 });
    const late = await proving;
    expect(late.socket.closed).toEqual({ code: 4503, reason: 'relay draining' });
    await core.background.idle();
    expect(await leasesOf(late)).toEqual([]);
  });

  it('to an empty cell is done at once', async () => {
    await order(30_000, 10_000);
    await readOrders();
    expect([core.reports, core.drain.progress()]).toEqual([1, { drain_told: 0, drain_left: 0 }]);
    expect(clock.armed).toBe(1); // the next look at the orders
  });
});

describe('the orders of a cell', () => {
  it('are read every 5 s ± 20 %, and at once when a change of this cell says so', async () => {
    await readOrders();
    const reads = () => counted(core, 'orca_relay_cell_order_reads_total');
    clock.advance(3_999);
    expect(await reads()).toBe(1);
    clock.advance(2_001);
    await until('the regular read', reads, (seen) => seen === 2);
    for (const [index, kind] of (['drain', 'admission', 'flags', 'mode'] as const).entries()) {
      const change = { kind, from_cell: null, to_cell: 'c1', user_id: null, relay_host_id: null } as Change;
      reactToChange(core, { ...change, to_cell: 'c2' });
      reactToChange(core, change);
      await until('a read', reads, (seen) => seen === 3 + index);
    }
  });

  it('are read once more, and no more than once, after a read during which something changed', async () => {
    for (let asks = 3; asks > 0; asks -= 1) core.orders.read();
    const reads = () => counted(core, 'orca_relay_cell_order_reads_total');
    await until('both reads', reads, (seen) => seen === 2);
    await until(
      'the next look armed',
      () => clock.armed,
      (armed) => armed === 1,
    );
    expect(await reads()).toBe(2);
  });

  it('stand while the database cannot say', async () => {
    const host = await seat();
    await order(30_000, 0);
    await readOrders();
    await database.query('alter function relay_v1.cell_orders rename to cell_orders_away');
    await readOrders();
    await database.query('alter function relay_v1.cell_orders_away rename to cell_orders');
    expect(await counted(core, 'orca_relay_cell_order_reads_total', { outcome: 'failed' })).toBe(1);
    expect([core.drain.ordered, host.session.state]).toEqual([true, 'drain-only']);
    await readOrders();
    expect(host.socket.frames('drain')).toHaveLength(1);
    expect(core.lines.filter(({ event }) => event === 'orca_relay_cell_orders_reached')).toHaveLength(1);
  });

  it('of a cell that is not registered are none', async () => {
    const unknown = startCore(database.urlFor('relay_cell'), clock, { cellId: 'c404' });
    unknown.orders.read();
    await until(
      'an answer without a row',
      () => counted(unknown, 'orca_relay_cell_order_reads_total', { outcome: 'not-registered' }),
      (seen) => seen === 1,
    );
    expect(await counted(unknown, 'orca_relay_cell_order_reads_total', { outcome: 'failed' })).toBe(0);
    unknown.orders.stop();
    await unknown.close();
  });
});

describe('a host that belongs elsewhere, or here anew', () => {
  it('keeps its seat without phones until its lease is retired, and goes sooner if a drain says so', async () => {
    const [drained, retired] = [await seat(), await seat()];
    const detail = { forced: false, retire_until: 61_000 };
    await order(30_000, 0);
    reactToChange(core, moved(drained, { detail }));
    reactToChange(core, moved(retired, { detail: { forced: false, retire_until: 11_000 } }));
    await readOrders();
    expect(drained.socket.frames('drain')).toHaveLength(1);
    clock.advance(10_000);
    expect(retired.socket.closed).toEqual({ code: 4503, reason: 'control migration completed' });
    clock.advance(20_000);
    expect(drained.socket.closed).toEqual({ code: 4503, reason: 'resolve configured director' });
  });

  it('leaves when its lease is retired, though a newer drain order would give it longer', async () => {
    const host = await seat();
    await order(30_000, 0);
    await readOrders();
    reactToChange(core, moved(host, { detail: { forced: false, retire_until: 41_000 } }));
    await order(300_000, 0);
    await readOrders();
    clock.advance(39_999);
    expect(host.socket.closed).toBeNull();
    clock.advance(1);
    expect(host.socket.closed).toEqual({ code: 4503, reason: 'control migration completed' });
  });

  it.each([
    ['rule 0', { kind: 'moved', to_cell: 'c1', detail: { forced: true, retire_until: null } }],
    ['the ledger', { kind: 'recorded', to_cell: 'c2', detail: { forced: true } }],
  ] as const)('at a higher epoch by %s loses the seat of the lower one at once', async (_by, over) => {
    const host = await seat();
    reactToChange(core, moved(host, over));
    expect(host.socket.closed).toEqual({ code: 4409, reason: 'assignment moved' });
  });

  it('dials again at its new epoch, before or after the cell has read of it', async () => {
    const old = await seat();
    const change = moved(old, { to_cell: 'c1', detail: { forced: true, retire_until: null } });
    const before = await seat(old.session.host, 2);
    expect(old.socket.closed?.code).toBe(4408);
    reactToChange(core, change);
    expect(before.session.state).toBe('active');
    const after = await seat(old.session.host, 2);
    expect(after.session.state).toBe('active');
    const stale = arrive(old.session.host);
    const frame = { assignmentEpoch: 1, appVersion: '1' } as never;
    await activate(core, stale.session, stale.socket.peer, { frame, base: null, shown: null });
    expect(stale.socket.closed?.code).toBe(4409);
    expect(after.session.state).toBe('active');
  });
});

describe('whatever is ordered, taken back and ordered again', () => {
  type Deed =
    | { do: 'order'; graceMs: number; paceMs: number }
    | { do: 'cancel' | 'seat' | 'lose'; at: number }
    | { do: 'retire'; at: number; inMs: number }
    | { do: 'wait'; ms: number };
  const span = fc.integer({ min: 0, max: 60_000 });
  const deed: fc.Arbitrary<Deed> = fc.oneof(
    fc.record({ do: fc.constant('order' as const), graceMs: span, paceMs: span }),
    fc.record({ do: fc.constantFrom('cancel' as const, 'seat' as const, 'lose' as const), at: fc.nat(20) }),
    fc.record({ do: fc.constant('retire' as const), at: fc.nat(20), inMs: span }),
    fc.record({ do: fc.constant('wait' as const), ms: span }),
  );

  /** Seats, clock and drain alone; the database is not asked. */
  class Cell {
    readonly own = startCore(database.urlFor('relay_cell'), new HandClock());
    readonly all: (Seated & { retired: boolean })[] = [];
    #orders = 0;
    /** When the last host that is seated now has to be gone; null without an order. */
    emptyAt: number | null = null;

    seat(): void {
      const { clock: ticking, seats, drain } = this.own;
      if (drain.ordered) return;
      const socket = new MemorySocket();
      const effects = {
        message: () => {},
        tick: () => {},
        closed: () => {},
        stepped: () => {},
        ended: (session: ControlSession) => {
          seats.unseat(session);
          drain.noteLeft();
        },
      };
      const identity = { ...newHost(), profileId: 'p', organizationId: null, expiresAt: ticking.wallNow() + 1e9 };
      const start = { identity, socket: socket.peer, capabilities: new Set<never>(), watermark: 1 };
      const session = new ControlSession(this.own, effects, start);
      session.activate({ epoch: 1, generation: 1, appVersion: '1' });
      seats.seat(session);
      this.all.push({ session, socket, retired: false });
    }

    act(deed: Deed): void {
      const { clock: ticking, drain, identity } = this.own;
      if (deed.do === 'order') {
        this.#orders += 1;
        const { graceMs: grace_ms, paceMs: pace_ms } = deed;
        drain.follow({ incarnation: identity.incarnation, grace_ms, pace_ms, ordered_at: this.#orders });
        this.emptyAt = ticking.now() + grace_ms + pace_ms;
      } else if (deed.do === 'cancel') {
        drain.follow(null);
        this.emptyAt = null;
      } else if (deed.do === 'seat') this.seat();
      else if (deed.do === 'wait') this.wait(deed.ms);
      else {
        const host = this.all[deed.at];
        if (host === undefined || host.session.state === 'closed') return;
        if (deed.do === 'retire') {
          host.retired = true;
          host.session.drain(deed.inMs, 'retired');
        } else host.socket.leave();
      }
    }

    wait(ms: number): void {
      for (let left = ms; left > 0; left -= 15_000) {
        (this.own.clock as HandClock).advance(Math.min(left, 15_000));
        for (const { session } of this.all) session.pong(0);
      }
    }

    check(): void {
      const { clock: ticking, seats, drain } = this.own;
      for (const { session, socket, retired } of this.all) {
        const frames = socket.frames('drain').filter(({ graceMs }) => graceMs !== 0);
        expect(frames.length).toBeLessThanOrEqual(1);
        if (session.drained) expect(session.takesPhones).toBe(false);
        if (!retired && this.#orders === 0) expect(session.drained).toBe(false);
      }
      if (this.emptyAt !== null && ticking.now() >= this.emptyAt) expect(seats.size).toBe(0);
      const { drain_left } = drain.progress();
      if (drain.ordered) expect([drain_left, this.own.reports > 0 || seats.size > 0]).toEqual([seats.size, true]);
    }
  }

  it('tells a host at most once, keeps nobody past the last order, and leaves no timer behind', async () => {
    const cells: Cell[] = [];
    try {
      fc.assert(
        fc.property(fc.array(deed, { maxLength: 30 }), (deeds) => {
          const cell = new Cell();
          cells.push(cell);
          for (let left = 4; left > 0; left -= 1) cell.seat();
          for (const next of deeds) {
            cell.act(next);
            cell.check();
          }
          cell.act({ do: 'order', graceMs: 5_000, paceMs: 5_000 });
          cell.wait(10_000);
          cell.check();
          expect((cell.own.clock as HandClock).armed).toBe(0);
        }),
        { numRuns: 100 },
      );
    } finally {
      await Promise.all(cells.map(({ own }) => own.close()));
    }
  });
});

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, incarnation, Session, seat, waitsForLock } from './placement-sessions.ts';

/** Every interleaving of two sessions around a drain: the first stays in its transaction until the second waits for it. */

let db: FreshDatabase;
let one: Session;
let two: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  await addCell(db, { cellId: 'x', admission: 'migration-only' });
  await addCell(db, { cellId: 'y' });
  await seat(db, 'host', 'x', 4);
  one = await Session.open(db.url);
  two = await Session.open(db.url);
});
afterEach(async () => {
  await Promise.all([one.close(), two.close()]);
  await db.drop();
});

const answer = async (session: Session, call: string, values: unknown[] = []): Promise<string> =>
  (await session.query<{ answer: string }>(`select ${call} as answer`, values))[0]!.answer;
const startDrain = (session: Session) => answer(session, "relay_v1.start_drain('x', 0, 0)");
const cancelDrain = (session: Session) => answer(session, "relay_v1.cancel_drain('x')");
const sweep = (session: Session) => answer(session, 'relay_v1.sweep_migrations()::text');
const activate = (session: Session, cellId: string, epoch: number, host = 'host') =>
  answer(session, '(relay_v1.activate_control($1, $2, $3, $4, $5, 1, 2)).outcome', [
    `user-${host}`,
    host,
    cellId,
    incarnation(),
    epoch,
  ]);
const release = (session: Session, cellId: string, epoch: number) =>
  answer(session, "relay_v1.release_lease('user-host', 'host', $1, $2, $3, 1)", [cellId, incarnation(), epoch]);
const evacuate = async (session: Session) =>
  (await session.query<{ outcome: string; moved: number }>("select * from relay_v1.evacuate_cell('x', 'y')"))[0]!;
const home = async () =>
  (
    await db.query<{ home: string }>(
      "select a.cell_id || ' ' || a.epoch as home from relay.assignment a where a.relay_host_id = 'host'",
    )
  )[0]!.home;
const migrations = async () =>
  (
    await db.query<{ state: string }>(
      `select concat_ws(' ', m.source_cell, m.target_cell, m.epoch, case when m.registered_at is not null then 'registered' end,
         case when m.completed_at is not null then 'completed' end, case when m.aborted_at is not null then 'aborted' end) as state
       from relay.migration m order by m.epoch`,
    )
  ).map(({ state }) => state);
const drainedHosts = async () =>
  (await db.query<{ drain_hosts: number }>("select c.drain_hosts from relay.cell c where c.cell_id = 'x'"))[0]!
    .drain_hosts;

const MOVED = { outcome: 'granted', rule: 'draining-home', cell_id: 'y', epoch: 5, moved: true };
const KEPT = { outcome: 'granted', rule: 'sticky', cell_id: 'x', epoch: 4, moved: false };

describe('a drain is ordered while a host asks', () => {
  test.each([
    ['commit', MOVED],
    ['rollback', KEPT],
  ] as const)(
    'the order first, %s: a host that would be granted waits, and is judged by what is ordered',
    async (end, expected) => {
      await one.begin();
      expect(await startDrain(one)).toBe('ok');
      const asked = two.assign('host');
      await waitsForLock(db, two);
      await one.query(end);
      expect(await asked).toMatchObject(expected);
      expect(await migrations()).toEqual(end === 'commit' ? ['x y 5'] : []);
    },
  );

  test('the order first: a host that is seated waits for nothing', async () => {
    expect(await activate(two, 'x', 4)).toBe('active');
    await one.begin();
    await startDrain(one);
    expect(await two.assign('host')).toMatchObject(KEPT);
    await one.commit();
    expect(await two.assign('host')).toMatchObject(MOVED);
  });

  test.each([
    ['commit', 1],
    ['rollback', 0],
  ] as const)('the grant first, %s: the order waits, and counts it among the hosts to let go', async (end, hosts) => {
    await one.begin();
    expect(await one.assign('host')).toMatchObject(KEPT);
    const ordered = startDrain(two);
    await waitsForLock(db, two);
    await one.query(end);
    expect(await ordered).toBe('ok');
    expect(await drainedHosts()).toBe(hosts);
  });

  test.each([
    ['commit', KEPT],
    ['rollback', MOVED],
  ] as const)(
    'the order is taken back first, %s: a host that would leave waits, and is judged by what is left',
    async (end, expected) => {
      await startDrain(one);
      await one.begin();
      expect(await cancelDrain(one)).toBe('ok');
      const asked = two.assign('host');
      await waitsForLock(db, two);
      await one.query(end);
      expect(await asked).toMatchObject(expected);
    },
  );

  test('the move first: the order is taken back after it, and the host stays where it was moved', async () => {
    await startDrain(one);
    await one.begin();
    expect(await one.assign('host')).toMatchObject(MOVED);
    const cancelled = cancelDrain(two);
    await waitsForLock(db, two);
    await one.commit();
    expect(await cancelled).toBe('ok');
    expect(await home()).toBe('y 5');
  });

  test('two hosts that leave a draining cell do not wait for each other', async () => {
    await seat(db, 'other', 'x', 4);
    await startDrain(one);
    await one.begin();
    expect(await one.assign('host')).toMatchObject(MOVED);
    expect(await two.assign('other')).toMatchObject(MOVED);
    await one.commit();
  });
});

describe('a host is moved off a draining cell while it attaches', () => {
  beforeEach(async () => {
    expect(await activate(one, 'x', 4)).toBe('active');
    expect(await startDrain(one)).toBe('ok');
  });

  test.each([
    ['commit', 'active', ['x y 5 registered']],
    ['rollback', 'wrong_cell', []],
  ] as const)('the move first, %s: the target waits for it', async (end, outcome, expected) => {
    await one.begin();
    expect(await one.assign('host')).toMatchObject(MOVED);
    const attached = activate(two, 'y', 5);
    await waitsForLock(db, two);
    await one.query(end);
    expect(await attached).toBe(outcome);
    expect(await migrations()).toEqual(expected);
  });

  test.each([
    ['commit', 'wrong_cell'],
    ['rollback', 'active'],
  ] as const)('the move first, %s: a late attach on the source waits for it', async (end, outcome) => {
    await one.begin();
    expect(await one.assign('host')).toMatchObject(MOVED);
    const attached = activate(two, 'x', 4);
    await waitsForLock(db, two);
    await one.query(end);
    expect(await attached).toBe(outcome);
  });

  test.each(['commit', 'rollback'] as const)(
    'the attach on the source first, %s: the move waits, and retires its lease',
    async (end) => {
      await one.begin();
      expect(await activate(one, 'x', 4)).toBe('active');
      const asked = two.assign('host');
      await waitsForLock(db, two);
      await one.query(end);
      expect(await asked).toMatchObject(MOVED);
      const leases = await db.query(
        "select l.state from relay.lease l where l.relay_host_id = 'host' order by l.cell_id",
      );
      expect(leases).toEqual([{ state: 'retiring' }, { state: 'granted' }]);
    },
  );
});

describe('the two ends of a migration', () => {
  beforeEach(async () => {
    expect(await activate(one, 'x', 4)).toBe('active');
    expect(await startDrain(one)).toBe('ok');
    expect(await two.assign('host')).toMatchObject(MOVED);
  });

  test('the attach first: the release of the old seat waits, and completes it', async () => {
    await one.begin();
    expect(await activate(one, 'y', 5)).toBe('active');
    const released = release(two, 'x', 4);
    await waitsForLock(db, two);
    await one.commit();
    expect(await released).toBe('released');
    expect(await migrations()).toEqual(['x y 5 registered completed']);
  });

  test('the release first: the attach waits, and completes it', async () => {
    await one.begin();
    expect(await release(one, 'x', 4)).toBe('released');
    const attached = activate(two, 'y', 5);
    await waitsForLock(db, two);
    await one.commit();
    expect(await attached).toBe('active');
    expect(await migrations()).toEqual(['x y 5 registered completed']);
  });

  test('a sweep passes by a host that is locked', async () => {
    expect(await release(one, 'x', 4)).toBe('released');
    await one.query(
      "update relay.migration m set opened_at = m.opened_at - interval '24 hours', expires_at = relay.now()",
    );
    await one.query("delete from relay.lease l where l.cell_id = 'y'");
    await one.begin();
    await one.query("select from relay.assignment a where a.relay_host_id = 'host' for update");
    expect(await sweep(two)).toBe('0');
    await one.rollback();
    expect(await sweep(two)).toBe('1');
  });

  test.each([
    ['commit', 'wrong_cell', 'x 6'],
    ['rollback', 'active', 'y 5'],
  ] as const)('a roll-back first, %s: a late attach on the target waits for it', async (end, outcome, where) => {
    expect(await release(one, 'x', 4)).toBe('released');
    await one.query("update relay.cell c set admission = 'general' where c.cell_id = 'x'");
    expect(await cancelDrain(one)).toBe('ok');
    await one.query(
      "update relay.migration m set opened_at = m.opened_at - interval '24 hours', expires_at = relay.now()",
    );
    await one.query("delete from relay.lease l where l.cell_id = 'y'");
    await one.begin();
    expect(await sweep(one)).toBe('1');
    const attached = activate(two, 'y', 5);
    await waitsForLock(db, two);
    await one.query(end);
    expect(await attached).toBe(outcome);
    expect(await home()).toBe(where);
  });

  test('a roll-back gives way to an operator who changes the source', async () => {
    expect(await release(one, 'x', 4)).toBe('released');
    await one.query("update relay.cell c set admission = 'general' where c.cell_id = 'x'");
    expect(await cancelDrain(one)).toBe('ok');
    await one.query(
      "update relay.migration m set opened_at = m.opened_at - interval '24 hours', expires_at = relay.now()",
    );
    await one.query("delete from relay.lease l where l.cell_id = 'y'");
    await one.begin();
    await one.query("update relay.cell c set admission = 'migration-only' where c.cell_id = 'x'");
    expect(await sweep(two)).toBe('0');
    await one.commit();
    expect(await sweep(two)).toBe('1');
    expect(await home()).toBe('y 5');
    expect(await migrations()).toEqual(['x y 5 aborted']);
  });
});

describe('an evacuation', () => {
  beforeEach(async () => {
    expect(await activate(one, 'x', 4)).toBe('active');
  });

  test('and a host that asks: the host waits, and is told where it was moved', async () => {
    await startDrain(one);
    await one.begin();
    expect(await evacuate(one)).toMatchObject({ outcome: 'ok', moved: 1 });
    const asked = two.assign('host');
    await waitsForLock(db, two);
    await one.commit();
    expect(await asked).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'y', epoch: 5 });
    expect(await migrations()).toEqual(['x y 5']);
  });

  test('passes by a host that is being moved', async () => {
    await startDrain(one);
    await one.begin();
    expect(await one.assign('host')).toMatchObject(MOVED);
    const evacuated = evacuate(two);
    await waitsForLock(db, two);
    await one.commit();
    expect(await evacuated).toMatchObject({ outcome: 'ok', moved: 0, remaining: 0 });
    expect(await home()).toBe('y 5');
  });

  test('twice at once: each host is moved once', async () => {
    await seat(db, 'other', 'x', 4);
    expect(await activate(one, 'x', 4, 'other')).toBe('active');
    await one.begin();
    expect(await evacuate(one)).toMatchObject({ outcome: 'ok', moved: 2 });
    const evacuated = evacuate(two);
    await waitsForLock(db, two);
    await one.commit();
    expect(await evacuated).toMatchObject({ outcome: 'ok', moved: 0, remaining: 0 });
    expect(await migrations()).toEqual(['x y 5', 'x y 5']);
  });

  test.each([
    ['commit', 'target_cell_unavailable'],
    ['rollback', 'ok'],
  ] as const)('waits for a change of the target, %s', async (end, outcome) => {
    await one.begin();
    await one.query("update relay.cell c set admission = 'existing-only' where c.cell_id = 'y'");
    const evacuated = evacuate(two);
    await waitsForLock(db, two);
    await one.query(end);
    expect(await evacuated).toMatchObject({ outcome });
  });
});

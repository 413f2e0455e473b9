import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, incarnation, letDie, Session, seat, waitsForLock } from './placement-sessions.ts';

/** assign beside one other call, in both orders; whoever comes first commits or does not. */

let db: FreshDatabase;
let director: Session;
let other: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  director = await Session.open(db.urlFor('relay_director'));
});
afterEach(async () => {
  await Promise.all([director.close(), other.close()]);
  await db.drop();
});

const row = (host: string) =>
  db.query('select a.cell_id, a.epoch from relay.assignment a where a.relay_host_id = $1', [host]);
const outcomeOf = async (session: Session, call: string): Promise<unknown> =>
  (await session.query<{ outcome: unknown }>(`select ${call} as outcome`))[0]?.outcome;

describe('assign and heartbeat', () => {
  const BEAT = `relay_v1.heartbeat('x', 'https://x.example', 'here', '${incarnation()}', timestamptz '2029-01-01' + interval '1 s',
    true, '{"enforced_units": 0, "inclusion_watermark": 2}')`;

  beforeEach(async () => {
    other = await Session.open(db.urlFor('relay_cell'));
    await addCell(db, { cellId: 'x' });
    await addCell(db, { cellId: 'y' });
    await letDie(db, ['x'], ['y']);
    await seat(db, 'host', 'x', 4);
  });

  test.each(['commit', 'rollback'] as const)('the move first, %s: the heartbeat waits for nothing', async (end) => {
    await director.begin();
    expect(await director.assign('host')).toMatchObject({ rule: 'dead-uncapped', cell_id: 'y', epoch: 5 });
    expect(await outcomeOf(other, BEAT)).toBe('ok');
    await director[end]();
    // 35: it stays where it was moved; where it was not moved, its cell is back
    const seatNow = end === 'commit' ? { cell_id: 'y', epoch: 5 } : { cell_id: 'x', epoch: 4 };
    expect(await director.assign('host')).toMatchObject({ outcome: 'granted', rule: 'sticky', ...seatNow });
  });

  test('the heartbeat first, not yet committed: the host is moved without waiting for it', async () => {
    await other.begin();
    expect(await outcomeOf(other, BEAT)).toBe('ok');
    expect(await director.assign('host')).toMatchObject({ rule: 'dead-uncapped', cell_id: 'y', epoch: 5 });
    await other.commit();
    expect(await row('host')).toEqual([{ cell_id: 'y', epoch: 5 }]);
  });

  test('the heartbeat first, committed: the host is kept', async () => {
    expect(await outcomeOf(other, BEAT)).toBe('ok');
    expect(await director.assign('host')).toMatchObject({ rule: 'sticky', cell_id: 'x', epoch: 4 });
  });
});

describe('assign and set_admission', () => {
  const FLIP = "relay_v1.set_admission('x', 'existing-only')";

  beforeEach(async () => {
    other = await Session.open(db.urlFor('relay_operator'));
    await addCell(db, { cellId: 'x' });
  });

  test.each(['commit', 'rollback'] as const)('the placement first, %s: the operator waits for it', async (end) => {
    await director.begin();
    expect(await director.assign('host')).toMatchObject({ rule: 'new', cell_id: 'x' });
    const flipped = outcomeOf(other, FLIP);
    await waitsForLock(db, other);
    await director[end]();
    expect(await flipped).toBe('ok');
    expect(await row('host')).toEqual(end === 'commit' ? [{ cell_id: 'x', epoch: 1 }] : []);
  });

  test('the operator first, committed: no new host lands there', async () => {
    await other.begin();
    expect(await outcomeOf(other, FLIP)).toBe('ok');
    const placed = director.assign('host');
    await waitsForLock(db, director);
    await other.commit();
    expect(await placed).toMatchObject({ outcome: 'no_capacity', rule: 'new' });
    expect(await row('host')).toEqual([]);
  });

  test('the operator first, undone: it lands', async () => {
    await other.begin();
    await outcomeOf(other, FLIP);
    const placed = director.assign('host');
    await waitsForLock(db, director);
    await other.rollback();
    expect(await placed).toMatchObject({ outcome: 'granted', rule: 'new', cell_id: 'x' });
  });

  test('a host that keeps its lease waits for no operator', async () => {
    await director.assign('host');
    await other.begin();
    await outcomeOf(other, FLIP);
    expect(await director.assign('host')).toMatchObject({ outcome: 'granted', rule: 'sticky' });
    await other.rollback();
  });
});

describe('assign and activate_control', () => {
  const activate = (cell: string, epoch: number) =>
    outcomeOf(
      other,
      `(relay_v1.activate_control('user-host', 'host', '${cell}', '${incarnation()}', ${epoch}, 1, 2)).outcome`,
    );

  /** x is being rolled: a host that asks leaves it. */
  beforeEach(async () => {
    other = await Session.open(db.urlFor('relay_cell'));
    await addCell(db, { cellId: 'x' });
    await addCell(db, { cellId: 'y' });
    await seat(db, 'host', 'x', 4);
    await db.query(
      "update relay.cell set admission = 'migration-only', roll_isolated_at = relay.now() where cell_id = 'x'",
    );
  });

  test('the move first, committed: the attach waits, and is refused', async () => {
    await director.begin();
    expect(await director.assign('host')).toMatchObject({ rule: 'roll-isolated', cell_id: 'y', epoch: 5 });
    const activated = activate('x', 4);
    await waitsForLock(db, other);
    await director.commit();
    expect(await activated).toBe('wrong_cell');
    expect(await activate('y', 5)).toBe('active');
  });

  test('the move first, undone: the attach is accepted', async () => {
    await director.begin();
    await director.assign('host');
    const activated = activate('x', 4);
    await waitsForLock(db, other);
    await director.rollback();
    expect(await activated).toBe('active');
  });

  test('the attach first: the move waits, and the seat retires', async () => {
    await other.begin();
    expect(await activate('x', 4)).toBe('active');
    const moved = director.assign('host');
    await waitsForLock(db, director);
    await other.commit();
    expect(await moved).toMatchObject({ rule: 'roll-isolated', cell_id: 'y', epoch: 5, from_cell_id: 'x' });
    expect(await db.query('select l.cell_id, l.state from relay.lease l order by l.cell_id')).toEqual([
      { cell_id: 'x', state: 'retiring' },
      { cell_id: 'y', state: 'granted' },
    ]);
  });
});

describe('assign and record_seats', () => {
  const record = async (cell_id: string, epoch: number) =>
    (
      await other.query<{ result: string }>('select r.result from relay_v1.record_seats($1) r', [
        JSON.stringify([{ user_id: 'user-host', relay_host_id: 'host', cell_id, epoch }]),
      ])
    )[0]?.result;

  beforeEach(async () => {
    other = await Session.open(db.urlFor('relay_director'));
    for (const cellId of ['x', 'y', 'z']) await addCell(db, { cellId });
    await letDie(db, ['x'], ['y', 'z']);
    await db.query("update relay.cell set admission = 'migration-only' where cell_id = 'z'");
    await seat(db, 'host', 'x', 4);
  });

  test('the move first: the ledger is told to come again, and is then too late', async () => {
    await director.begin();
    expect(await director.assign('host', { floor: 4 })).toMatchObject({ cell_id: 'y', epoch: 5 });
    expect(await record('x', 5)).toBe('busy');
    await director.commit();
    expect(await record('x', 5)).toBe('stale');
    expect(await row('host')).toEqual([{ cell_id: 'y', epoch: 5 }]);
  });

  test('the move first, undone: the ledger writes', async () => {
    await director.begin();
    await director.assign('host', { floor: 4 });
    await director.rollback();
    expect(await record('z', 5)).toBe('recorded');
    expect(await director.assign('host', { floor: 5 })).toMatchObject({ rule: 'sticky', cell_id: 'z', epoch: 5 });
  });

  test('the ledger first, committed: the move waits, and the host is kept where the ledger says', async () => {
    await other.begin();
    expect(await record('z', 6)).toBe('recorded');
    const asked = director.assign('host', { floor: 4 });
    await waitsForLock(db, director);
    await other.commit();
    expect(await asked).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'z', epoch: 6 });
  });

  test('the ledger first, undone: the host is moved', async () => {
    await other.begin();
    await record('z', 6);
    const asked = director.assign('host', { floor: 4 });
    await waitsForLock(db, director);
    await other.rollback();
    expect(await asked).toMatchObject({ rule: 'dead-uncapped', cell_id: 'y', epoch: 5 });
  });
});

describe('a move off a dead reserve cell and set_admit_mode (31)', () => {
  const FLIP = "relay_v1.set_admit_mode('x', 'db')";
  let asked: { floor: number; dead: { cellId: string; at: number } };

  beforeEach(async () => {
    other = await Session.open(db.urlFor('relay_operator'));
    await addCell(db, { cellId: 'x' });
    await addCell(db, { cellId: 'y' });
    await db.query(
      `update relay.cell set admit_mode = 'reserve', connection_hard_cap = 600, connection_unobserved_bound = 60
       where cell_id = 'x'`,
    );
    await letDie(db, ['x'], ['y']);
    await seat(db, 'host', 'x', 4);
    asked = { floor: 4, dead: { cellId: 'x', at: await db.now() } };
  });

  test.each(['commit', 'rollback'] as const)('the move first, %s: the flip waits for it', async (end) => {
    await director.begin();
    expect(await director.assign('host', asked)).toMatchObject({ rule: 'dead-reserve', cell_id: 'y', epoch: 5 });
    const flipped = outcomeOf(other, FLIP);
    await waitsForLock(db, other);
    await director[end]();
    expect(await flipped).toBe('ok');
    expect(await row('host')).toEqual([end === 'commit' ? { cell_id: 'y', epoch: 5 } : { cell_id: 'x', epoch: 4 }]);
  });

  test('the flip first, committed: the move waits, and is refused', async () => {
    await other.begin();
    expect(await outcomeOf(other, FLIP)).toBe('ok');
    const moved = director.assign('host', asked);
    await waitsForLock(db, director);
    await other.commit();
    expect(await moved).toMatchObject({ outcome: 'unavailable', cause: 'unheard' });
  });

  test('the flip first, undone: it moves', async () => {
    await other.begin();
    await outcomeOf(other, FLIP);
    const moved = director.assign('host', asked);
    await waitsForLock(db, director);
    await other.rollback();
    expect(await moved).toMatchObject({ outcome: 'granted', rule: 'dead-reserve', cell_id: 'y', epoch: 5 });
  });
});

test('the grants beside all this are counted once a heartbeat has them', async () => {
  other = await Session.open(db.url);
  await addCell(db, { cellId: 'x', units: 10 });
  await director.begin();
  await director.assign('host');
  await beat(db, 'x', 0, 1, 2);
  await director.commit();
  expect(await outcomeOf(other, "relay.load('x', relay.now())")).toBe(1);
});

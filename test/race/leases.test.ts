import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ActivateControlResult, RenewedLease } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, incarnation, letDie, Session, seat, waitsForLock } from './placement-sessions.ts';

let db: FreshDatabase;
let director: Session;
let cell: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  director = await Session.open(db.urlFor('relay_director'));
  cell = await Session.open(db.urlFor('relay_cell'));
  await addCell(db, { cellId: 'x' });
  await addCell(db, { cellId: 'y' });
});
afterEach(async () => {
  await Promise.all([director.close(), cell.close()]);
  await db.drop();
});

async function activate(session: Session, host: string, cellId: string, epoch: number): Promise<string> {
  const [row] = await session.query<ActivateControlResult>(
    'select * from relay_v1.activate_control($1, $2, $3, $4, $5, 1, 1)',
    [`user-${host}`, host, cellId, incarnation(), epoch],
  );
  return row!.outcome;
}

async function renew(session: Session, hosts: readonly string[]): Promise<Record<string, string>> {
  const leases = hosts.map((host) => ({
    user_id: `user-${host}`,
    relay_host_id: host,
    epoch: 4,
    generation: 1,
    units: 1,
    inclusion_watermark: 1,
  }));
  const rows = await session.query<RenewedLease>('select * from relay_v1.renew_leases($1, $2, $3)', [
    'x',
    incarnation(),
    JSON.stringify(leases),
  ]);
  return Object.fromEntries(rows.map(({ relay_host_id, outcome }) => [relay_host_id, outcome]));
}

const outcomeOf = async (session: Session, statement: string) =>
  Object.values((await session.query<Record<string, unknown>>(statement))[0] ?? {})[0];

describe('a host is moved while its old cell revives', () => {
  beforeEach(async () => {
    for (const host of ['moves', 'stays']) {
      await seat(db, host, 'x', 4);
      await activate(cell, host, 'x', 4);
    }
    await letDie(db, ['x'], ['y']);
    await director.begin();
    expect(await director.assign('moves')).toMatchObject({ outcome: 'granted', cell_id: 'y', epoch: 5 });
  });

  test('a renewal waits for nobody, and renews the others of its batch', async () => {
    expect(await renew(cell, ['moves', 'stays'])).toEqual({ moves: 'lease_lock_unavailable', stays: 'renewed' });
    await director.commit();
    expect(await renew(cell, ['moves', 'stays'])).toEqual({ moves: 'control_activity_not_found', stays: 'renewed' });
  });

  test('an activation waits, and is then refused (P2)', async () => {
    const activated = activate(cell, 'moves', 'x', 4);
    await waitsForLock(db, cell);
    await director.commit();
    expect(await activated).toBe('wrong_cell');
  });

  test('an activation that waits for a move that fails is accepted', async () => {
    const activated = activate(cell, 'moves', 'x', 4);
    await waitsForLock(db, cell);
    await director.rollback();
    expect(await activated).toBe('active');
  });

  test('it waits 500 ms at most', async () => {
    expect(await activate(cell, 'moves', 'x', 4)).toBe('busy');
    await director.rollback();
  });

  test('a sweep leaves both rows to whoever holds them', async () => {
    await db.advanceClock(3_600_000);
    expect(await outcomeOf(cell, "select has_function_privilege('relay_v1.sweep_leases(int)', 'execute')")).toBe(false);
    const sweeper = await Session.open(db.urlFor('relay_director'));
    expect(await outcomeOf(sweeper, 'select relay_v1.sweep_leases()')).toBe(1);
    await director.rollback();
    await sweeper.close();
  });

  test('a sweep leaves a lease that is being renewed', async () => {
    await director.rollback();
    await db.advanceClock(3_600_000);
    await cell.begin();
    await renew(cell, ['stays']);
    expect(await outcomeOf(director, 'select relay_v1.sweep_leases()')).toBe(1);
    await cell.commit();
    expect(await renew(cell, ['stays'])).toEqual({ stays: 'renewed' });
  });
});

describe('two processes of one cell (V2)', () => {
  test('both beat for the first time: the older one is refused', async () => {
    await db.query("select relay_v1.register_cell('new', 'https://new.example', 'here', 100)");
    const first = (session: Session, process: number) =>
      outcomeOf(
        session,
        `select relay_v1.heartbeat('new', 'https://new.example', 'here', '${incarnation(process)}',
           timestamptz '2029-01-01' + ${process} * interval '1 s', true, '{"enforced_units": 0, "inclusion_watermark": 1}')`,
      );
    await cell.begin();
    expect(await first(cell, 2)).toBe('ok');
    const other = await Session.open(db.urlFor('relay_cell'));
    const late = first(other, 1);
    await waitsForLock(db, other);
    await cell.commit();
    expect(await late).toBe('stale_cell_incarnation');
    await other.close();
  });

  test('the old one takes no lease, renews none and releases none', async () => {
    await seat(db, 'host', 'x', 4);
    await activate(cell, 'host', 'x', 4);
    await beat(db, 'x', 0, 2);
    expect(await activate(cell, 'host', 'x', 4)).toBe('stale_cell_incarnation');
    expect(await renew(cell, ['host'])).toEqual({ host: 'stale_cell_incarnation' });
    expect(
      await outcomeOf(cell, `select relay_v1.release_lease('user-host', 'host', 'x', '${incarnation()}', 4, 1)`),
    ).toBe('stale_cell_incarnation');
  });
});

describe('a latch taken shared', () => {
  test('is no use once 64 units are free, and is not upgraded: busy', async () => {
    await db.query("update relay.cell set admission = 'existing-only' where cell_id = 'y'");
    await db.query("update relay.cell set capacity_units = 129 where cell_id = 'x'");
    const operator = await Session.open(db.url);
    await operator.begin();
    await operator.query("update relay.cell set flags_generation = 1 where cell_id = 'x'");
    // decided on 129 free units, so shared; while it waits, the cell fills up to 64
    const asked = director.assign('host');
    await waitsForLock(db, director);
    await beat(db, 'x', 65);
    await operator.commit();
    expect(await asked).toMatchObject({ outcome: 'busy', rule: 'latch-busy' });
    expect(await director.assign('host')).toMatchObject({ outcome: 'granted', cell_id: 'x' });
    await operator.close();
  });

  test('with 65 it is', async () => {
    await db.query("update relay.cell set admission = 'existing-only' where cell_id = 'y'");
    await db.query("update relay.cell set capacity_units = 129 where cell_id = 'x'");
    const operator = await Session.open(db.url);
    await operator.begin();
    await operator.query("update relay.cell set flags_generation = 1 where cell_id = 'x'");
    const asked = director.assign('host');
    await waitsForLock(db, director);
    await beat(db, 'x', 64);
    await operator.commit();
    expect(await asked).toMatchObject({ outcome: 'granted', cell_id: 'x' });
    await operator.close();
  });
});

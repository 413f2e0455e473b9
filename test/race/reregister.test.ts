import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { ReregisteredControl } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, incarnation, letDie, Session, seat, waitsForLock } from './placement-sessions.ts';

/** A cell leaves reserve mode while others write the rows of its hosts (90). */

let db: FreshDatabase;
let other: Session;
let cell: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  other = await Session.open(db.url);
  cell = await Session.open(db.urlFor('relay_cell'));
  for (const cellId of ['x', 'y']) await addCell(db, { cellId });
  for (const host of ['a', 'b', 'c']) await seat(db, host, 'x', 4);
  await db.query('delete from relay.lease');
});
afterEach(async () => {
  await Promise.all([other.close(), cell.close()]);
  await db.drop();
});

async function reregister(hosts: readonly string[], generation = 1): Promise<Record<string, string>> {
  const controls = hosts.map((host) => ({
    user_id: `user-${host}`,
    relay_host_id: host,
    epoch: 4,
    generation,
    units: 1,
    inclusion_watermark: 1,
  }));
  const rows = await cell.query<ReregisteredControl>('select * from relay_v1.reregister_controls($1, $2, $3)', [
    'x',
    incarnation(),
    JSON.stringify(controls),
  ]);
  return Object.fromEntries(rows.map(({ relay_host_id, outcome }) => [relay_host_id, outcome]));
}

describe('90: a batch of controls waits for nobody', () => {
  test('a host whose row is held is passed over, the others are leased, and it is had at the next try', async () => {
    await other.begin();
    await other.query("update relay.assignment set last_activity_at = last_activity_at where relay_host_id = 'b'");
    expect(await reregister(['a', 'b', 'c'])).toEqual({ a: 'active', b: 'busy', c: 'active' });
    await other.rollback();
    expect(await reregister(['b'])).toEqual({ b: 'active' });
  });

  test('one whose lease is being renewed, too', async () => {
    expect(await reregister(['a'])).toEqual({ a: 'active' });
    await other.begin();
    await other.query("select from relay.lease where relay_host_id = 'a' for update");
    expect(await reregister(['a', 'b'], 2)).toEqual({ a: 'busy', b: 'active' });
    await other.commit();
    expect(await reregister(['a'], 2)).toEqual({ a: 'active' });
  });

  test('a host that is moved meanwhile is busy, and then refused by its row (P2)', async () => {
    await letDie(db, ['x'], ['y']);
    await other.begin();
    expect(await other.assign('a')).toMatchObject({ outcome: 'granted', cell_id: 'y', epoch: 5 });
    expect(await reregister(['a'])).toEqual({ a: 'busy' });
    await other.commit();
    expect(await reregister(['a'])).toEqual({ a: 'wrong_cell' });
    const leases = await db.query("select cell_id, epoch from relay.lease where relay_host_id = 'a'");
    expect(leases).toEqual([{ cell_id: 'y', epoch: 5 }]);
  });

  test('an ask waits for the batch, and then finds the lease', async () => {
    await cell.begin();
    expect(await reregister(['a'])).toEqual({ a: 'active' });
    const asked = other.assign('a');
    await waitsForLock(db, other);
    await cell.commit();
    expect(await asked).toMatchObject({ outcome: 'granted', cell_id: 'x', epoch: 4, moved: false });
  });

  test('a successor that is heard while the batch is under way leases its own (V2)', async () => {
    await cell.begin();
    expect(await reregister(['a'])).toEqual({ a: 'active' });
    await beat(db, 'x', 0, 2);
    expect(await reregister(['b'])).toEqual({ b: 'stale_cell_incarnation' });
    await cell.commit();
  });
});

import { afterEach, beforeEach, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, incarnation, Session, seat, waitsForLock } from './placement-sessions.ts';

/** Functions that lock many rows, or a row that the checks before it do not hold, against a second session. */

let db: FreshDatabase;
let one: Session;
let two: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  await addCell(db, { cellId: 'x', admission: 'migration-only' });
  await addCell(db, { cellId: 'y' });
  one = await Session.open(db.url);
  two = await Session.open(db.url);
});
afterEach(async () => {
  await Promise.all([one.close(), two.close()]);
  await db.drop();
});

test('a ledger batch passes over a host that another session is placing for the first time', async () => {
  await seat(db, 'known', 'x', 4);
  await one.begin();
  await one.assign('fresh');
  const rows = await two.query<{ relay_host_id: string; result: string }>('select * from relay_v1.record_seats($1)', [
    JSON.stringify(
      ['fresh', 'known'].map((host) => ({
        user_id: `user-${host}`,
        relay_host_id: host,
        cell_id: 'y',
        epoch: 5,
      })),
    ),
  ]);
  await one.commit();
  expect(rows.map((row) => [row.relay_host_id, row.result])).toEqual([
    ['fresh', 'busy'],
    ['known', 'recorded'],
  ]);
});

test('a process that was replaced while its mode waited does not write over its successor', async () => {
  const says = (session: Session, process: number, mode: string) =>
    session.query<{ answer: string }>('select relay_v1.record_effective_mode($1, $2, $3) as answer', [
      'y',
      incarnation(process),
      mode,
    ]);
  await says(one, 1, 'reserve');
  await one.begin();
  await says(one, 1, 'reserve');
  const late = says(two, 1, 'db');
  await waitsForLock(db, two);
  await beat(db, 'y', 0, 2);
  await one.commit();
  expect(await late).toEqual([{ answer: 'stale_cell_incarnation' }]);
  expect(await db.query('select mode from relay.cell_effective_mode')).toEqual([{ mode: 'reserve' }]);
});

test('an order to drain and a pass over many migrations lock them in one order', async () => {
  // the table holds them against the order in which the passes go
  for (const host of ['b', 'a']) {
    await seat(db, host, 'y', 5);
    await db.query(
      `insert into relay.migration (user_id, relay_host_id, epoch, source_cell, source_incarnation, target_cell, opened_at, expires_at)
       values ($1, $2, 5, 'x', $3, 'y', relay.now(), relay.now() + interval '15 min')`,
      [`user-${host}`, host, incarnation()],
    );
  }
  // as in a fleet where most migrations leave other cells: those of this one are found by their source
  await db.query(
    `insert into relay.migration (user_id, relay_host_id, epoch, source_cell, target_cell, opened_at, expires_at)
     select 'user', 'other-' || n, 5, 'z', 'y', relay.now(), relay.now() + interval '15 min' from generate_series(1, 2000) n`,
  );
  await db.query('analyze relay.migration');
  const lock = (session: Session, host: string) =>
    session.query('select from relay.migration where relay_host_id = $1 for update', [host]);
  await one.begin();
  await lock(one, 'a');
  const order = two.query<{ answer: string }>("select relay_v1.start_drain('x') as answer");
  await waitsForLock(db, two);
  await lock(one, 'b');
  await one.commit();
  expect(await order).toEqual([{ answer: 'ok' }]);
});

test('an evacuation that waits for a cell in an operator’s hands gives its hosts back after 500 ms', async () => {
  await seat(db, 'host', 'x', 4);
  await one.begin();
  await one.query("select relay_v1.set_admission('y', 'migration-only')");
  const started = performance.now();
  await expect(two.query("select * from relay_v1.evacuate_cell('x', 'y')")).rejects.toMatchObject({ code: '55P03' });
  expect(performance.now() - started).toBeLessThan(8_000);
  await one.commit();
  expect(await two.query("select outcome, moved from relay_v1.evacuate_cell('x', 'y')")).toEqual([
    { outcome: 'ok', moved: 1 },
  ]);
});

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, letDie, Session, seat, waitsForLock } from './placement-sessions.ts';

const HOSTS = Array.from({ length: 50 }, (_, n) => `host-${n}`);
/** What set_admit_mode does to the cell; the latch is taken by the row's trigger. */
const FLIP = "update relay.cell set admit_mode = 'db' where cell_id = 'x'";

let db: FreshDatabase;
let one: Session;
let two: Session;
let asked: { floor: number; dead: { cellId: string; at: number } };

/** x is a capped reserve cell whose heartbeats stopped, y has room, and the director's polls say that x is dead. */
beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  one = await Session.open(db.urlFor('relay_director'));
  two = await Session.open(db.urlFor('relay_director'));
  await addCell(db, { cellId: 'x' });
  await addCell(db, { cellId: 'y' });
  await db.query(
    `update relay.cell set admit_mode = 'reserve', connection_hard_cap = 600, connection_unobserved_bound = 60
     where cell_id = 'x'`,
  );
  await letDie(db, ['x'], ['y']);
  for (const host of HOSTS) await seat(db, host, 'x', 4);
  asked = { floor: 4, dead: { cellId: 'x', at: await db.now() } };
});
afterEach(async () => {
  await Promise.all([one.close(), two.close()]);
  await db.drop();
});

const row = (host: string) =>
  db.query('select a.cell_id, a.epoch from relay.assignment a where a.relay_host_id = $1', [host]);

describe('the mode of the dead cell flips in a second session (31)', () => {
  let operator: Session;

  beforeEach(async () => {
    operator = await Session.open(db.url);
    await operator.begin();
    await operator.query(FLIP);
  });
  afterEach(() => operator.close());

  test('uncommitted, then committed: the assign waits, and refuses', async () => {
    const answer = one.assign('host-0', asked);
    await waitsForLock(db, one);
    await operator.commit();
    expect(await answer).toMatchObject({ outcome: 'unavailable', cause: 'unheard', verdict_wanted: false });
    expect(await row('host-0')).toEqual([{ cell_id: 'x', epoch: 4 }]);
  });

  test('uncommitted, then undone: it moves', async () => {
    const answer = one.assign('host-0', asked);
    await waitsForLock(db, one);
    await operator.rollback();
    expect(await answer).toMatchObject({ outcome: 'granted', rule: 'dead-reserve', cell_id: 'y', epoch: 5 });
  });

  test('uncommitted for 500 ms: busy', async () => {
    expect(await one.assign('host-0', asked)).toMatchObject({ outcome: 'busy', rule: 'row-busy' });
    expect(await row('host-0')).toEqual([{ cell_id: 'x', epoch: 4 }]);
    await operator.rollback();
  });

  test('committed before: refused', async () => {
    await operator.commit();
    expect(await one.assign('host-0', asked)).toMatchObject({ outcome: 'unavailable', cause: 'unheard' });
  });
});

test('a move that came first is committed before the flip (31)', async () => {
  await one.begin();
  expect(await one.assign('host-0', asked)).toMatchObject({ rule: 'dead-reserve' });
  const operator = await Session.open(db.url);
  const flipped = operator.query(FLIP);
  await waitsForLock(db, operator);
  await one.commit();
  await flipped;
  await operator.close();
  expect(await row('host-0')).toEqual([{ cell_id: 'y', epoch: 5 }]);
});

test('50 moves at once do not serialise on the dead cell (31)', async () => {
  await one.begin();
  for (const host of HOSTS.slice(0, 25)) {
    expect(await one.assign(host, asked)).toMatchObject({ outcome: 'granted', cell_id: 'y' });
  }
  for (const host of HOSTS.slice(25)) {
    expect(await two.assign(host, asked)).toMatchObject({ outcome: 'granted', cell_id: 'y' });
  }
  await one.commit();
});

describe('two dials of one host (33)', () => {
  test('the epoch rises once, and the other gets it', async () => {
    await one.begin();
    expect(await one.assign('host-0', asked)).toMatchObject({ rule: 'dead-reserve', cell_id: 'y', epoch: 5 });
    const second = two.assign('host-0', asked);
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'y', epoch: 5, moved: false });
    expect(await db.query("select from relay.change c where c.kind = 'moved'")).toHaveLength(1);
  });

  test('or is told busy', async () => {
    await one.begin();
    await one.assign('host-0', asked);
    expect(await two.assign('host-0', asked)).toMatchObject({ outcome: 'busy', rule: 'row-busy' });
    await one.rollback();
    expect(await row('host-0')).toEqual([{ cell_id: 'x', epoch: 4 }]);
  });
});

describe('the seat that a director knows', () => {
  test('is recorded once by two that bring it', async () => {
    const seen = { cell_id: 'y', epoch: 6 };
    await one.begin();
    expect(await one.assign('host-0', { seen, floor: 6 })).toMatchObject({ rule: 'sticky', cell_id: 'y', epoch: 6 });
    const second = two.assign('host-0', { seen, floor: 6 });
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'y', epoch: 6 });
    expect(await db.query("select from relay.change c where c.kind = 'recorded'")).toHaveLength(1);
  });

  test('does not undo a move that was made meanwhile', async () => {
    await one.begin();
    await one.assign('host-0', { ...asked, floor: 6 });
    const second = two.assign('host-0', { seen: { cell_id: 'x', epoch: 6 }, floor: 6, dead: asked.dead });
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'y', epoch: 7 });
    expect(await row('host-0')).toEqual([{ cell_id: 'y', epoch: 7 }]);
  });

  test('is not brought to a row that somebody holds: busy', async () => {
    const holder = await Session.open(db.url);
    await holder.begin();
    await holder.query("select from relay.assignment where relay_host_id = 'host-0' for update");
    expect(await one.assign('host-0', { seen: { cell_id: 'y', epoch: 6 }, floor: 6 })).toMatchObject({
      outcome: 'busy',
      rule: 'row-busy',
      cell_id: null,
    });
    await holder.rollback();
    await holder.close();
  });
});

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, letDie, Session, seat, waitsForLock } from './placement-sessions.ts';

let db: FreshDatabase;
let one: Session;
let two: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  one = await Session.open(db.urlFor('relay_director'));
  two = await Session.open(db.urlFor('relay_director'));
});
afterEach(async () => {
  await Promise.all([one.close(), two.close()]);
  await db.drop();
});

const epochs = (host: string) =>
  db.query<{ cell_id: string; epoch: number }>(
    'select a.cell_id, a.epoch from relay.assignment a where a.relay_host_id = $1',
    [host],
  );
/** Runs as the owner with a transaction left open: an operator in the middle of something. */
const operator = async (...statements: string[]): Promise<Session> => {
  const session = await Session.open(db.url);
  await session.begin();
  for (const statement of statements) await session.query(statement);
  return session;
};

describe('one host asks twice at once', () => {
  test('new: the second waits, and gets the cell and epoch of the first', async () => {
    await addCell(db, { cellId: 'a' });
    await addCell(db, { cellId: 'b' });
    await one.begin();
    const first = await one.assign('host');
    const second = two.assign('host');
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: first.cell_id, epoch: 1 });
    expect(await db.query("select from relay.change c where c.kind = 'placed'")).toHaveLength(1);
  });

  test('new, the first fails: the second places it, at epoch 1', async () => {
    await addCell(db, { cellId: 'a' });
    await one.begin();
    await one.assign('host');
    const second = two.assign('host');
    await waitsForLock(db, two);
    await one.rollback();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'new', epoch: 1 });
  });

  test('leaving a dead cell: the epoch rises once (33)', async () => {
    await addCell(db, { cellId: 'x' });
    await addCell(db, { cellId: 'y' });
    await seat(db, 'host', 'x', 4);
    await letDie(db, ['x'], ['y']);
    await one.begin();
    expect(await one.assign('host')).toMatchObject({ outcome: 'granted', cell_id: 'y', epoch: 5, moved: true });
    const second = two.assign('host');
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'y', epoch: 5, moved: false });
    expect(await epochs('host')).toEqual([{ cell_id: 'y', epoch: 5 }]);
  });

  test('the first stays in its transaction: the second is told busy after 500 ms (33)', async () => {
    await addCell(db, { cellId: 'x' });
    await addCell(db, { cellId: 'y' });
    await seat(db, 'host', 'x', 4);
    await letDie(db, ['x'], ['y']);
    await one.begin();
    await one.assign('host');
    const started = performance.now();
    expect(await two.assign('host')).toMatchObject({ outcome: 'busy', rule: 'row-busy', cell_id: null });
    expect(performance.now() - started).toBeGreaterThan(450);
    await one.rollback();
    expect(await epochs('host')).toEqual([{ cell_id: 'x', epoch: 4 }]);
  });

  test('a lease is granted once; a host that holds one waits for nobody', async () => {
    await addCell(db, { cellId: 'a' });
    await seat(db, 'host', 'a', 4);
    await one.begin();
    expect(await one.assign('host')).toMatchObject({ outcome: 'granted', rule: 'sticky' });
    const second = two.assign('host');
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'sticky', epoch: 4 });
    expect(await db.query("select from relay.change c where c.kind = 'granted'")).toHaveLength(1);
    const holder = await operator("select from relay.assignment where relay_host_id = 'host' for update");
    await db.advanceClock(61_000);
    await beat(db, 'a');
    expect(await two.assign('host')).toMatchObject({ outcome: 'granted', rule: 'sticky' });
    await holder.rollback();
    await holder.close();
  });
});

test('a host that is moved while its grant waits is granted under the latch of its new home alone', async () => {
  await addCell(db, { cellId: 'a' });
  await addCell(db, { cellId: 'b' });
  await seat(db, 'host', 'a', 4);
  const mover = await operator("update relay.assignment set cell_id = 'b', epoch = 5 where relay_host_id = 'host'");
  await one.begin();
  const asked = one.assign('host');
  await waitsForLock(db, one);
  await mover.commit();
  expect(await asked).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'b', epoch: 5 });
  const latched = await db.query(
    `select c.cell_id from pg_locks l join relay.cell c on c.latch = l.objid::int
     where l.locktype = 'advisory' and l.classid::int = relay.latch_space() and l.pid = $1`,
    [one.pid],
  );
  expect(latched).toEqual([{ cell_id: 'b' }]);
  await one.commit();
  await mover.close();
});

describe('the last free unit', () => {
  beforeEach(() => addCell(db, { cellId: 'a', units: 10, enforced: 9 }));

  test('the second waits for the latch, and is refused', async () => {
    await one.begin();
    expect(await one.assign('first')).toMatchObject({ outcome: 'granted' });
    const second = two.assign('second');
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'no_capacity', rule: 'new' });
    expect(await epochs('second')).toEqual([]);
  });

  test('the first fails: the second has it', async () => {
    await one.begin();
    await one.assign('first');
    const second = two.assign('second');
    await waitsForLock(db, two);
    await one.rollback();
    expect(await second).toMatchObject({ outcome: 'granted', rule: 'new' });
  });

  test('the first is slow: the second is told busy', async () => {
    await one.begin();
    await one.assign('first');
    expect(await two.assign('second')).toMatchObject({ outcome: 'busy', rule: 'row-busy' });
    await one.rollback();
  });

  test('a host that returns home takes part in it', async () => {
    await seat(db, 'returns', 'a', 4);
    await one.begin();
    await one.assign('first');
    const second = two.assign('returns');
    await waitsForLock(db, two);
    await one.commit();
    expect(await second).toMatchObject({ outcome: 'no_capacity', rule: 'headroom' });
    expect(await epochs('returns')).toEqual([{ cell_id: 'a', epoch: 4 }]);
  });

  test('another cell with room is taken instead, without waiting for a second latch', async () => {
    await addCell(db, { cellId: 'b', units: 10 });
    const holder = await operator("update relay.cell set capacity_units = 11 where cell_id = 'a'");
    const asked = await Promise.all([
      one.assign('first', { region: 'here' }),
      two.assign('second', { region: 'here' }),
    ]);
    for (const answer of asked) {
      // who picked b got it at once; who picked a waited for its latch and was told so
      expect(answer.outcome === 'busy' || answer.cell_id === 'b').toBe(true);
    }
    await holder.rollback();
    await holder.close();
  });
});

describe('admission flips while a grant waits', () => {
  const flip = "update relay.cell set admission = 'existing-only' where cell_id = 'a'";

  beforeEach(() => addCell(db, { cellId: 'a' }));

  test('committed: no new host lands there', async () => {
    const holder = await operator(flip);
    const asked = one.assign('host');
    await waitsForLock(db, one);
    await holder.commit();
    expect(await asked).toMatchObject({ outcome: 'no_capacity', rule: 'new' });
    expect(await epochs('host')).toEqual([]);
    await holder.close();
  });

  test('undone: it lands', async () => {
    const holder = await operator(flip);
    const asked = one.assign('host');
    await waitsForLock(db, one);
    await holder.rollback();
    expect(await asked).toMatchObject({ outcome: 'granted', rule: 'new', cell_id: 'a' });
    await holder.close();
  });

  test('not decided for 500 ms: busy', async () => {
    const holder = await operator(flip);
    expect(await one.assign('host')).toMatchObject({ outcome: 'busy', rule: 'row-busy' });
    expect(await epochs('host')).toEqual([]);
    await holder.rollback();
    await holder.close();
  });

  test('a grant that came first is committed before the flip', async () => {
    await one.begin();
    expect(await one.assign('host')).toMatchObject({ outcome: 'granted' });
    const holder = await Session.open(db.url);
    const flipped = holder.query(flip);
    await waitsForLock(db, holder);
    await one.commit();
    await flipped;
    expect(await epochs('host')).toEqual([{ cell_id: 'a', epoch: 1 }]);
    await holder.close();
  });

  test('of the home: a host that leaves it waits, and is then judged by what it has become', async () => {
    await addCell(db, { cellId: 'b', units: 100 });
    await beat(db, 'a', 10_000);
    await seat(db, 'host', 'a', 4);
    const holder = await operator("update relay.cell set admission = 'migration-only' where cell_id = 'a'");
    const asked = one.assign('host');
    await waitsForLock(db, one);
    await holder.commit();
    expect(await asked).toMatchObject({ outcome: 'no_headroom', rule: 'no-headroom' });
    await holder.close();
  });

  test('hosts that leave one cell do not wait for each other (31)', async () => {
    await addCell(db, { cellId: 'b' });
    await letDie(db, ['a'], ['b']);
    for (let n = 0; n < 4; n++) await seat(db, `host-${n}`, 'a', 4);
    await one.begin();
    await one.assign('host-0');
    await one.assign('host-1');
    expect(await two.assign('host-2')).toMatchObject({ outcome: 'granted', cell_id: 'b', epoch: 5 });
    await one.commit();
  });
});

describe('far from the limit no host waits for another', () => {
  const HELD = [
    "select from relay.cell where cell_id = 'a' for update",
    "select from relay.cell_runtime where cell_id = 'a' for update",
    'select from relay.setting for update',
    "select from relay.assignment where relay_host_id = 'other' for update",
    "select from relay.lease where relay_host_id = 'other' for update",
    'select from relay.change for update',
    "select from relay.migration where relay_host_id = 'other' for update",
    'select from relay.mutation_lease for update',
  ];

  test.each(HELD)('nor for a row that anybody holds (incident 36): %s', async (held) => {
    await addCell(db, { cellId: 'a' });
    await addCell(db, { cellId: 'dead' });
    await one.assign('other');
    await db.query("select relay.open_migration('user-other', 'other', 1, 'dead', 'a', true, relay.now())");
    await letDie(db, ['dead'], ['a']);
    for (const host of ['moves', 'grows']) await seat(db, host, host === 'moves' ? 'dead' : 'a', 4);
    const holder = await operator(held);
    expect(await two.assign('new')).toMatchObject({ outcome: 'granted', rule: 'new' });
    expect(await two.assign('grows')).toMatchObject({ outcome: 'granted', rule: 'sticky' });
    expect(await two.assign('moves')).toMatchObject({ outcome: 'granted', rule: 'dead-uncapped' });
    await holder.rollback();
    await holder.close();
  });

  test('nor for a host that is being granted a unit', async () => {
    await addCell(db, { cellId: 'a', units: 130 });
    await one.begin();
    await one.assign('first');
    expect(await two.assign('second')).toMatchObject({ outcome: 'granted' });
    await one.commit();
  });
});

describe('locks', () => {
  test('none is left when a session is killed in the middle (incident 9)', async () => {
    await addCell(db, { cellId: 'a', units: 10 });
    const victim = await Session.open(db.urlFor('relay_director'));
    await victim.begin();
    await victim.assign('host');
    await db.query('select pg_terminate_backend($1, 5000)', [victim.pid]);
    const locks = await db.query(
      "select from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = $1)",
      [db.name],
    );
    expect(locks).toEqual([]);
    expect(await one.assign('host')).toMatchObject({ outcome: 'granted', rule: 'new', epoch: 1 });
  });

  test('assign refuses an isolation level that would decide on an old snapshot', async () => {
    await addCell(db, { cellId: 'a' });
    await one.query('begin isolation level repeatable read');
    await expect(one.assign('host')).rejects.toMatchObject({ code: 'RL001' });
    await one.rollback();
  });
});

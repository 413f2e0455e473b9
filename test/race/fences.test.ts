import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, incarnation, Session, seat, waitsForLock } from './placement-sessions.ts';

/** Every interleaving of two sessions around a fence: the first stays in its transaction until the second waits for it. */

let db: FreshDatabase;
let one: Session;
let two: Session;

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  // x and z are to be fenced, y takes their hosts
  for (const cellId of ['x', 'z']) await addCell(db, { cellId, admission: 'existing-only' });
  await addCell(db, { cellId: 'y' });
  await seat(db, 'host', 'x', 4);
  one = await Session.open(db.url);
  two = await Session.open(db.url);
});
afterEach(async () => {
  await Promise.all([one.close(), two.close()]);
  await db.drop();
});

interface FenceResult {
  outcome: string;
  attempt_id: string | null;
}

async function fenceBegin(session: Session, cellId: string, operation: string): Promise<FenceResult> {
  const rows = await session.query<FenceResult>("select * from relay_v1.fence_begin($1, $2, $3, 'disk')", [
    cellId,
    incarnation(),
    operation,
  ]);
  return rows[0]!;
}
const step = async (session: Session, fn: 'fence_start' | 'fence_commit', attemptId: string): Promise<string> =>
  (await session.query<{ answer: string }>(`select relay_v1.${fn}($1) as answer`, [attemptId]))[0]!.answer;
const release = async (session: Session): Promise<string> =>
  (await session.query<{ answer: string }>("select relay_v1.fence_release('x') as answer"))[0]!.answer;
const heartbeat = async (session: Session, process: number): Promise<string> => {
  const rows = await session.query<{ answer: string }>(
    `select relay_v1.heartbeat('x', 'https://x.example', 'here', $1, timestamptz '2029-01-01' + $2 * interval '1 s', true,
       '{"enforced_units": 0, "inclusion_watermark": 1}') as answer`,
    [incarnation(process), process],
  );
  return rows[0]!.answer;
};
const sweep = async (session: Session): Promise<number> =>
  (await session.query<{ moved: number }>('select relay_v1.sweep_dead_cells() as moved'))[0]!.moved;

/** Begun and started, and silent for as long as a commit needs. */
async function readyToCommit(): Promise<string> {
  const { attempt_id } = await fenceBegin(one, 'x', 'op');
  expect(await step(one, 'fence_start', attempt_id!)).toBe('ok');
  await db.advanceClock(45_000);
  await beat(db, 'y');
  return attempt_id!;
}
async function fenced(): Promise<string> {
  const attempt = await readyToCommit();
  expect(await step(one, 'fence_commit', attempt)).toBe('ok');
  return attempt;
}
const fences = () => db.query('select from relay.fence');
const home = () =>
  db.query<{ cell_id: string; epoch: number }>(
    "select a.cell_id, a.epoch from relay.assignment a where a.relay_host_id = 'host'",
  );

describe('two operators begin at once (F8)', () => {
  test.each([
    ['another operation', 'other', 'cell_fence_attempt_evidence_mismatch'],
    ['the same', 'op', 'begun'],
  ])('%s: the second waits, and there is one attempt', async (_, operation, outcome) => {
    await one.begin();
    const first = await fenceBegin(one, 'x', 'op');
    const second = fenceBegin(two, 'x', operation);
    await waitsForLock(db, two);
    await one.commit();
    expect(first.outcome).toBe('begun');
    expect(await second).toMatchObject({ outcome, attempt_id: outcome === 'begun' ? first.attempt_id : null });
    expect(await db.query('select from relay.fence_attempt')).toHaveLength(1);
  });

  test('the first fails: the second is the one', async () => {
    await one.begin();
    await fenceBegin(one, 'x', 'op');
    const second = fenceBegin(two, 'x', 'other');
    await waitsForLock(db, two);
    await one.rollback();
    expect(await second).toMatchObject({ outcome: 'begun' });
  });

  test.each([
    ['commit', 'mutation_lease_conflict'],
    ['rollback', 'begun'],
  ] as const)(
    'on two cells, the first ends with %s: the second waits for the mutation lease (F9)',
    async (end, outcome) => {
      await one.begin();
      await fenceBegin(one, 'x', 'op');
      const second = fenceBegin(two, 'z', 'op');
      await waitsForLock(db, two);
      await one.query(end);
      expect(await second).toMatchObject({ outcome });
      expect(await db.query('select from relay.fence_attempt')).toHaveLength(1);
    },
  );
});

describe('a heartbeat and a commit', () => {
  test.each([
    ['commit', 'cell_fence_runtime_not_stale'],
    ['rollback', 'ok'],
  ] as const)('the heartbeat first, %s: the commit waits and is answered %s (F4)', async (end, answer) => {
    const attempt = await readyToCommit();
    await one.begin();
    expect(await heartbeat(one, 1)).toBe('ok');
    const committed = step(two, 'fence_commit', attempt);
    await waitsForLock(db, two);
    await one.query(end);
    expect(await committed).toBe(answer);
    expect(await fences()).toHaveLength(answer === 'ok' ? 1 : 0);
  });

  test('a heartbeat of a new process first: the attempt is superseded (F11)', async () => {
    const attempt = await readyToCommit();
    await one.begin();
    expect(await heartbeat(one, 2)).toBe('ok');
    const committed = step(two, 'fence_commit', attempt);
    await waitsForLock(db, two);
    await one.commit();
    expect(await committed).toBe('cell_fence_attempt_superseded');
    expect(await db.query('select from relay.mutation_lease m where m.attempt_id is not null')).toEqual([]);
  });

  test.each(['commit', 'rollback'] as const)(
    'the commit first, %s: the heartbeat waits, and no fence is left (F5)',
    async (end) => {
      const attempt = await readyToCommit();
      await one.begin();
      expect(await step(one, 'fence_commit', attempt)).toBe('ok');
      const beaten = heartbeat(two, 1);
      await waitsForLock(db, two);
      await one.query(end);
      expect(await beaten).toBe('ok');
      expect(await fences()).toEqual([]);
    },
  );

  test('a heartbeat of another cell waits for neither', async () => {
    const attempt = await readyToCommit();
    await one.begin();
    await step(one, 'fence_commit', attempt);
    await beat(db, 'z');
    await one.rollback();
  });
});

describe('a commit and a host that asks', () => {
  test('the commit first: until it is there the host is refused, without waiting', async () => {
    const attempt = await readyToCommit();
    await one.begin();
    await step(one, 'fence_commit', attempt);
    const before = await two.assign('host', { by: 'resolve' });
    expect(before).toMatchObject({ outcome: 'unavailable', rule: 'home-unavailable', cause: 'draining' });
    await one.commit();
    expect(await two.assign('host', { by: 'resolve' })).toMatchObject({
      outcome: 'granted',
      rule: 'fenced',
      cell_id: 'y',
      epoch: 5,
    });
  });

  test('the move first: a commit that renews the fence waits for it', async () => {
    const attempt = await fenced();
    await one.begin();
    expect(await one.assign('host', { by: 'resolve' })).toMatchObject({ rule: 'fenced', cell_id: 'y' });
    const committed = step(two, 'fence_commit', attempt);
    await waitsForLock(db, two);
    await one.commit();
    expect(await committed).toBe('ok');
    expect(await home()).toEqual([{ cell_id: 'y', epoch: 5 }]);
  });

  test.each([
    ['commit', { outcome: 'unavailable', rule: 'home-unavailable' }, 4],
    ['rollback', { outcome: 'granted', rule: 'fenced' }, 5],
  ] as const)(
    'the fence is taken back first, %s: the host waits and is judged by what is left',
    async (end, answer, epoch) => {
      await fenced();
      await one.begin();
      expect(await release(one)).toBe('ok');
      const asked = two.assign('host', { by: 'resolve' });
      await waitsForLock(db, two);
      await one.query(end);
      expect(await asked).toMatchObject(answer);
      expect(await home()).toMatchObject([{ epoch }]);
    },
  );

  test('the cell comes back while its host is moved: the host stays where it was moved (35)', async () => {
    await fenced();
    await one.begin();
    expect(await one.assign('host', { by: 'resolve' })).toMatchObject({ rule: 'fenced', cell_id: 'y', epoch: 5 });
    expect(await heartbeat(two, 1)).toBe('ok');
    await one.commit();
    expect(await two.assign('host')).toMatchObject({ outcome: 'granted', rule: 'sticky', cell_id: 'y', epoch: 5 });
  });
});

describe('sweeps of a fenced cell', () => {
  test('one director sweeps at a time, and none waits', async () => {
    for (let n = 0; n < 20; n++) await seat(db, `h${n}`, 'x', 4);
    await fenced();
    await one.begin();
    expect(await sweep(one)).toBe(4);
    expect(await sweep(two)).toBe(0);
    await one.commit();
    expect(await sweep(two)).toBe(3);
  });

  test('a host that is being asked for is left alone', async () => {
    await fenced();
    await one.begin();
    await one.assign('host', { by: 'resolve' });
    expect(await sweep(two)).toBe(0);
    await one.commit();
    expect(await home()).toEqual([{ cell_id: 'y', epoch: 5 }]);
  });

  test('a host that asks while it is swept is told where it went', async () => {
    await fenced();
    await one.begin();
    expect(await sweep(one)).toBe(1);
    const asked = two.assign('host');
    await waitsForLock(db, two);
    await one.commit();
    expect(await asked).toMatchObject({ outcome: 'granted', cell_id: 'y', epoch: 5, moved: false });
  });
});

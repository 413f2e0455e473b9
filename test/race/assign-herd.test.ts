import { afterEach, beforeEach, expect, test } from 'vitest';
import type { AssignResult } from '../../server/sql-interface.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { historyProblems } from './history.ts';
import { addCell, beat, incarnation, letDie, Session, seat } from './placement-sessions.ts';

const CONNECTIONS = 16;
const HOSTS = Array.from({ length: 200 }, (_, n) => `host-${n}`);
/** A host that is told busy asks again; this many times is far more than it should need. */
const MAX_ASKS = 200;

let db: FreshDatabase;
let sessions: Session[];

beforeEach(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  sessions = await Promise.all(Array.from({ length: CONNECTIONS }, () => Session.open(db.urlFor('relay_director'))));
});
afterEach(async () => {
  await Promise.all(sessions.map((session) => session.close()));
  await db.drop();
});

interface Dialled {
  host: string;
  answer: AssignResult;
  busy: number;
}

/** Every host asks at once, over all connections, and again while it is told busy. */
async function dial(hosts: readonly string[]): Promise<Dialled[]> {
  const waiting = [...hosts];
  const done: Dialled[] = [];
  await Promise.all(
    sessions.map(async (session) => {
      for (let host = waiting.shift(); host !== undefined; host = waiting.shift()) {
        let answer = await session.assign(host);
        let busy = 0;
        for (; answer.outcome === 'busy' && busy < MAX_ASKS; busy++) answer = await session.assign(host);
        done.push({ host, answer, busy });
      }
    }),
  );
  return done;
}

const count = (dialled: readonly Dialled[], outcome: string) =>
  dialled.filter(({ answer }) => answer.outcome === outcome).length;
const loadOf = async (cellId: string) =>
  (await db.query<{ load: number }>('select relay.load($1, relay.now()) as load', [cellId]))[0]?.load;

test('200 hosts into a cell with 150 free units: 150 grants, 50 refusals, whoever comes first', async () => {
  await addCell(db, { cellId: 'a', units: 1000, enforced: 850 });
  const dialled = await dial(HOSTS);
  expect({ granted: count(dialled, 'granted'), refused: count(dialled, 'no_capacity') }).toEqual({
    granted: 150,
    refused: 50,
  });
  expect(await loadOf('a')).toBe(1000);
  expect(await historyProblems(db)).toEqual([]);
  expect((await db.query('select from relay.assignment')).length).toBe(150);
});

test('over three cells, two of them nearly full: every unit is given, and none twice', async () => {
  await addCell(db, { cellId: 'a', units: 100, enforced: 90 });
  await addCell(db, { cellId: 'b', units: 100, enforced: 40 });
  await addCell(db, { cellId: 'c', units: 500, enforced: 400 });
  const dialled = await dial(HOSTS);
  expect({ granted: count(dialled, 'granted'), refused: count(dialled, 'no_capacity') }).toEqual({
    granted: 170,
    refused: 30,
  });
  expect(await Promise.all(['a', 'b', 'c'].map(loadOf))).toEqual([100, 100, 500]);
  expect(await historyProblems(db)).toEqual([]);
});

test('200 hosts return to a full home at once: 150 are kept, the rest are moved', async () => {
  await addCell(db, { cellId: 'a', units: 1000, enforced: 850 });
  await addCell(db, { cellId: 'b', units: 10_000 });
  for (const host of HOSTS) await seat(db, host, 'a', 4);
  const dialled = await dial(HOSTS);
  expect(count(dialled, 'granted')).toBe(200);
  expect(dialled.filter(({ answer }) => answer.moved && answer.epoch === 5 && answer.cell_id === 'b')).toHaveLength(50);
  expect(await loadOf('a')).toBe(1000);
});

test('far from the limit nobody is told busy, and no session waits for a lock', async () => {
  await addCell(db, { cellId: 'a' });
  await addCell(db, { cellId: 'b' });
  let waits = 0;
  let watching = true;
  const watch = (async () => {
    while (watching) {
      const rows = await db.query(
        "select from pg_stat_activity where datname = $1 and wait_event in ('advisory', 'transactionid', 'tuple') and query like '%relay_v1.assign%'",
        [db.name],
      );
      waits += rows.length;
    }
  })();
  const dialled = await dial(HOSTS);
  watching = false;
  await watch;
  expect({ granted: count(dialled, 'granted'), busy: dialled.reduce((sum, { busy }) => sum + busy, 0), waits }).toEqual(
    {
      granted: 200,
      busy: 0,
      waits: 0,
    },
  );
});

test('heartbeats and activations beside the herd: what a host holds is counted once', async () => {
  await addCell(db, { cellId: 'a', units: 150 });
  let seated = 0;
  let mark = 1;
  const herd = dial(HOSTS);
  let dialling = true;
  herd.finally(() => {
    dialling = false;
  });
  // the cell: seats every host it was promised, and tells with each beat whom it counts
  while (dialling) {
    const granted = await db.query<{ user_id: string; relay_host_id: string; epoch: number }>(
      "select l.user_id, l.relay_host_id, l.epoch from relay.lease l where l.state = 'granted' limit 20",
    );
    for (const { user_id, relay_host_id, epoch } of granted) {
      await db.query('select relay_v1.activate_control($1, $2, $3, $4, $5, 1, $6)', [
        user_id,
        relay_host_id,
        'a',
        incarnation(),
        epoch,
        mark + 1,
      ]);
      seated++;
    }
    await beat(db, 'a', seated, 1, ++mark);
    expect(await loadOf('a')).toBeLessThanOrEqual(150);
  }
  const dialled = await herd;
  expect({ granted: count(dialled, 'granted'), refused: count(dialled, 'no_capacity') }).toEqual({
    granted: 150,
    refused: 50,
  });
});

test('cells die and come back while hosts dial: every history holds (P1, P2)', async () => {
  const cells = ['a', 'b', 'c'];
  for (const cellId of cells) await addCell(db, { cellId });
  const hosts = HOSTS.slice(0, 60);
  await dial(hosts);
  for (const dead of ['a', 'b', 'c', 'a']) {
    await letDie(
      db,
      [dead],
      cells.filter((cellId) => cellId !== dead),
    );
    // twice at once, so that dials of one host meet
    const dialled = await dial([...hosts, ...hosts]);
    expect(dialled.filter(({ answer }) => answer.outcome !== 'granted' || answer.cell_id === dead)).toEqual([]);
    await beat(db, dead);
  }
  expect(await historyProblems(db)).toEqual([]);
});

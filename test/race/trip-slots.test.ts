import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { addCell, beat, incarnation, Session } from './placement-sessions.ts';

/** Cells that claim trip slots together, and a process that dies in the middle (P7; 72, incidents 9 and 30). */

const CELLS = Array.from({ length: 8 }, (_, i) => `cell-${i}`);
const SLOTS = 2;

let db: FreshDatabase;
let sessions: Session[];
let watcher: Session;

beforeAll(async () => {
  db = await freshDatabase();
  await db.setClock(Date.UTC(2030, 0, 1));
  for (const cellId of CELLS) await addCell(db, { cellId });
  // heard for long enough that silences may be judged
  for (let s = 0; s < 60; s += 15) {
    await db.advanceClock(15_000);
    for (const cellId of CELLS) await beat(db, cellId);
  }
  for (const cellId of CELLS) await db.query("select relay_v1.set_admit_mode($1, 'reserve')", [cellId]);
  sessions = await Promise.all(CELLS.map(() => Session.open(db.url)));
  watcher = await Session.open(db.url);
});
afterAll(async () => {
  await Promise.all([...sessions, watcher].map((session) => session.close()));
  await db.drop();
});
beforeEach(async () => {
  for (const cellId of CELLS) {
    await db.query("select relay_v1.record_effective_mode($1, $2, 'reserve')", [cellId, incarnation()]);
  }
});

const claim = async (session: Session, cellId: string): Promise<string> => {
  const rows = await session.query<{ answer: string }>('select relay_v1.claim_trip_slot($1, $2, $3) as answer', [
    cellId,
    incarnation(),
    SLOTS,
  ]);
  return rows[0]!.answer;
};
const holders = async (session: Session): Promise<number> =>
  Number(
    (await session.query<{ n: number }>("select count(*) as n from relay.cell_effective_mode where mode = 'db'"))[0]!.n,
  );

/** Claims until it is answered for good; `busy` if it never was. */
async function insist(session: Session, cellId: string): Promise<string> {
  let answer = 'busy';
  for (let tries = 0; tries < 500 && answer === 'busy'; tries++) answer = await claim(session, cellId);
  return answer;
}

describe('trip slots', () => {
  test.each([1, 2, 3, 4, 5])(
    '72: eight cells claim two slots together, run %i: exactly two hold one, never three',
    async () => {
      let most = 0;
      let claiming = true;
      const watch = (async () => {
        while (claiming) most = Math.max(most, await holders(watcher));
      })();
      const answers = await Promise.all(CELLS.map((cellId, i) => insist(sessions[i]!, cellId)));
      claiming = false;
      await watch;
      expect(answers.filter((answer) => answer === 'granted')).toHaveLength(SLOTS);
      expect(answers.filter((answer) => answer === 'full')).toHaveLength(CELLS.length - SLOTS);
      expect(await holders(watcher)).toBe(SLOTS);
      expect(most).toBeLessThanOrEqual(SLOTS);
    },
  );

  test('a claim never waits for another: it is busy', async () => {
    await sessions[0]!.begin();
    expect(await claim(sessions[0]!, CELLS[0]!)).toBe('granted');
    expect(await claim(sessions[1]!, CELLS[1]!)).toBe('busy');
    await sessions[0]!.commit();
    expect(await claim(sessions[1]!, CELLS[1]!)).toBe('granted');
  });

  test('incident 9: a claimer that is killed in the middle leaves no lock and no slot', async () => {
    const victim = await Session.open(db.url);
    await victim.begin();
    expect(await claim(victim, CELLS[0]!)).toBe('granted');
    await db.query('select pg_terminate_backend($1, 5000)', [victim.pid]);
    expect(await db.query("select from pg_locks where locktype = 'advisory' and pid = $1", [victim.pid])).toEqual([]);
    expect(await holders(watcher)).toBe(0);
    expect(await claim(sessions[1]!, CELLS[1]!)).toBe('granted');
  });
});

describe('the ledger', () => {
  const record = async (session: Session, cellId: string, epoch: number): Promise<string[]> => {
    const rows = [1, 2, 3].map((n) => ({ user_id: 'user', relay_host_id: `host-${n}`, cell_id: cellId, epoch }));
    const results = await session.query<{ result: string }>('select result from relay_v1.record_seats($1)', [
      JSON.stringify(rows),
    ]);
    return results.map(({ result }) => result);
  };

  test('P2: two directors record one epoch on two cells: the first row wins, the other seat is stale', async () => {
    for (let epoch = 1; epoch <= 20; epoch++) {
      const [one, two] = await Promise.all([
        record(sessions[0]!, 'cell-0', epoch),
        record(sessions[1]!, 'cell-1', epoch),
      ]);
      for (const [i, first] of one.entries()) {
        // busy: the other was writing that row; it is sent again and then finds the row
        const pair = [first, two[i]].sort().join(' ');
        expect(['recorded stale', 'busy recorded']).toContain(pair);
      }
      const again = [await record(sessions[0]!, 'cell-0', epoch), await record(sessions[1]!, 'cell-1', epoch)];
      expect(
        again[0]!
          .map((result, i) => `${result} ${again[1]![i]}`)
          .every((pair) => /^(recorded stale|stale recorded)$/.test(pair)),
      ).toBe(true);
    }
  });
});

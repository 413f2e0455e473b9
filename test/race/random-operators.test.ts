import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { FleetInMotion } from './fleet-in-motion.ts';
import { type Granted, historyProblems } from './history.ts';
import { addCell, Session } from './placement-sessions.ts';

let db: FreshDatabase;
beforeEach(async () => {
  db = await freshDatabase();
});
afterEach(() => db.drop());

const RUN_MS = 10_000;
/** A slow machine gets so many times as long until everything has happened. */
const MAX_RUNS = 9;
/** Without these it was an idle run. */
const HAPPENS = [/^granted new/, /^granted draining-home/, /^granted fenced|^sweep_dead_cells/, /^activate active/];

test(
  'eight sessions, 500 hosts and an operator at random: the log keeps every promise (P1, P2)',
  async () => {
    const fleet = await FleetInMotion.start(db, 500);
    const missing = () => HAPPENS.filter((what) => ![...fleet.outcomes.keys()].some((outcome) => what.test(outcome)));
    for (let runs = 0; runs === 0 || (runs < MAX_RUNS && missing().length > 0); runs += 1) await fleet.run(RUN_MS, 8);
    const seen = [...fleet.outcomes].sort(([, a], [, b]) => b - a).map(([what, n]) => `${what} ${n}`);
    expect(await historyProblems(db, fleet.granted), seen.join('\n')).toEqual([]);
    // one open migration a host at most, and each about its row
    expect(
      await db.query(
        `select m.* from relay.migration m join relay.assignment a using (user_id, relay_host_id)
         where m.completed_at is null and m.aborted_at is null and (m.target_cell, m.epoch) is distinct from (a.cell_id, a.epoch)`,
      ),
    ).toEqual([]);
    expect(missing(), seen.join('\n')).toEqual([]);
  },
  MAX_RUNS * RUN_MS + 180_000,
);

describe('the checker finds a planted fault', () => {
  let granted: Granted[];

  beforeEach(async () => {
    for (const cellId of ['a', 'b']) await addCell(db, { cellId });
    const session = await Session.open(db.url);
    const answer = await session.assign('host');
    granted = [{ host: 'host', floor: 0, cellId: answer.cell_id!, epoch: answer.epoch! }];
    await session.close();
    expect(await historyProblems(db, granted)).toEqual([]);
  });

  const moved = (from: string, to: string, epoch: number) =>
    db.query(
      `insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, at)
       values ('moved', $1, $2, 'user-host', 'host', $3, relay.now())`,
      [from, to, epoch],
    );
  const home = () => granted[0]!.cellId;
  const other = () => (home() === 'a' ? 'b' : 'a');

  test('an epoch that repeats on another cell', async () => {
    await moved(home(), other(), 1);
    expect(await historyProblems(db)).toEqual(
      expect.arrayContaining(['host: epoch 1 after 1', 'host: epoch 1 on two cells']),
    );
  });

  test('a move off a cell that the host was not on', async () => {
    await moved(other(), home(), 2);
    expect(await historyProblems(db)).toContain(`host: moved from ${other()}, was on ${home()}`);
  });

  test('a move that nobody wrote down', async () => {
    await db.query('update relay.assignment set cell_id = $1, epoch = 2', [other()]);
    expect(await historyProblems(db)).toContain(`host: the row says ${other()}@2, the log ${home()}@1`);
  });

  test('a lease that is granted where the host does not belong', async () => {
    await db.query(
      `insert into relay.change (kind, to_cell, user_id, relay_host_id, epoch, at)
       values ('granted', $1, 'user-host', 'host', 1, relay.now())`,
      [other()],
    );
    expect(await historyProblems(db)).toEqual([`host: granted on ${other()}@1, was on ${home()}@1`]);
  });

  test('a grant below the floor that its caller gave, and one that the log does not know', async () => {
    expect(await historyProblems(db, [{ ...granted[0]!, floor: 2 }])).toEqual([
      `host: granted ${home()}@1 below the floor 2`,
    ]);
    expect(await historyProblems(db, [{ ...granted[0]!, cellId: other() }])).toEqual([
      `host: granted ${other()}@1, which the log does not know`,
    ]);
  });
});

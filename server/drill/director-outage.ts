import { setTimeout as sleep } from 'node:timers/promises';
import type { Ask } from '../operator/mode-steps.ts';
import { Crowd, keptSocket } from './crowd.ts';
import { type DrillFleet, startDrillFleet } from './drill-fleet.ts';
import { latestChange, movesOff } from './history.ts';
import type { Timeline } from './timeline.ts';

export interface DirectorOutageOptions {
  hosts: number;
}

const REGION = 'east';
const CELLS = ['c1', 'c2', 'c3', 'c4'].map((id) => ({ id, region: REGION }));
const SLOTS = 2;
/** The longest window of a cell is 120 s; then come the claims. */
const OUTAGE_MS = 130_000;
const LOOK_MS = 1_000;
const RETURN_MS = 10_000;

/** P7: every director is gone; of the reserve cells no more than the slots allow run on the database, and nobody is dropped. */
export async function drillDirectorOutage(
  { hosts }: DirectorOutageOptions,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  timeline.title(`Every director is gone: ${hosts} hosts, ${CELLS.length} reserve cells, ${SLOTS} trip slots`);
  const fleet = await startDrillFleet({ cells: CELLS, directors: 2 });
  const crowd = new Crowd(
    fleet.directors.map(({ origin }) => origin),
    fleet.selfHostedKey,
  );
  try {
    timeline.says('the fleet is up');
    await crowd.gather(hosts, REGION);
    await Promise.all(
      CELLS.map(async ({ id }) => {
        await setSlots(fleet.ask, id);
        await fleet.switchMode(id, 'reserve', timeline, signal);
      }),
    );
    timeline.says(`${hosts} hosts are seated, every cell is in reserve mode`);
    await outage(fleet, crowd, timeline, signal);
    await comeBack(fleet, crowd, timeline, signal);
  } finally {
    crowd.stop();
    await fleet.stop();
  }
}

/** One value on every cell (P7). */
async function setSlots(ask: Ask, cellId: string): Promise<void> {
  await ask(
    `select relay_v1.set_cell_flags($1, m.flags || $2, m.flags_generation) from relay_v1.modes m where m.cell_id = $1`,
    [cellId, JSON.stringify({ deadManTripSlots: SLOTS })],
  );
}

async function outage(fleet: DrillFleet, crowd: Crowd, timeline: Timeline, signal: AbortSignal): Promise<void> {
  const goneAt = performance.now();
  await Promise.all(fleet.directors.map((director) => director.kill()));
  timeline.says('both directors are killed');
  let most = 0;
  const firstTrip = new Map<string, number>();
  while (performance.now() - goneAt < OUTAGE_MS) {
    await sleep(LOOK_MS, undefined, { signal });
    const rows = await fleet.ask<{ cell_id: string }>('select cell_id from relay_v1.trip_slots where holds_slot');
    most = Math.max(most, rows.length);
    for (const { cell_id } of rows) {
      if (firstTrip.has(cell_id)) continue;
      firstTrip.set(cell_id, performance.now() - goneAt);
      timeline.says(`${cell_id} has tripped after ${((performance.now() - goneAt) / 1_000).toFixed(0)} s of silence`);
    }
  }
  const held = new Set(fleet.events('orca_relay_cell_reserve_dead_man_held').map(({ process }) => process));
  timeline.judge('P7', most === SLOTS, `${most} cells ran on the database at once, ${SLOTS} may`);
  timeline.judge('72', firstTrip.size === SLOTS, `${[...firstTrip.keys()].sort().join(' and ')} tripped`);
  timeline.judge(
    '62',
    held.size === CELLS.length - SLOTS,
    `${[...held].sort().join(' and ')} asked and stayed in reserve mode`,
  );
  const seated = crowd.members.filter(keptSocket).length;
  timeline.judge('61', seated === crowd.members.length, `${seated} of ${crowd.members.length} hosts kept their socket`);
}

async function comeBack(fleet: DrillFleet, crowd: Crowd, timeline: Timeline, signal: AbortSignal): Promise<void> {
  const since = await latestChange(fleet.ask);
  await Promise.all(fleet.directors.map((director) => director.start()));
  timeline.says('both directors are started again');
  await sleep(RETURN_MS, undefined, { signal });
  const rows = await fleet.ask<{ cell_id: string }>(
    'select cell_id from relay_v1.trip_slots where holds_slot order by 1',
  );
  timeline.judge('61', rows.length === SLOTS, 'a tripped cell stays tripped when it hears from a director again');
  await Promise.all(
    rows.map(async ({ cell_id }) => {
      await fleet.switchMode(cell_id, 'db', timeline, signal);
      await fleet.switchMode(cell_id, 'reserve', timeline, signal);
    }),
  );
  const left = await fleet.ask('select from relay_v1.trip_slots where holds_slot');
  timeline.judge('75', left.length === 0, 'both slots are free once the operator has re-armed the cells');
  let moves = 0;
  for (const { id } of CELLS) moves += (await movesOff(fleet.ask, id, since)).length;
  const seated = crowd.members.filter(keptSocket).length;
  timeline.judge(
    'P3',
    moves === 0 && seated === crowd.members.length,
    `${seated} hosts never moved and never lost a socket`,
  );
}

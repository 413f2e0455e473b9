import { setTimeout as sleep } from 'node:timers/promises';
import { Crowd, keptSocket } from './crowd.ts';
import { type DrillCell, type DrillFleet, startDrillFleet } from './drill-fleet.ts';
import { latestChange, movesOff } from './history.ts';
import { seconds, shareAfter } from './shares.ts';
import type { Timeline } from './timeline.ts';

export interface PartitionOptions {
  hosts: number;
}

const NEAR = 'east';
const FAR = 'west';
const CELLS = ['c1', 'c2', 'c3', 'c4', 'c5'].map((id) => ({ id, region: NEAR }));
/** So few that the fleet as a whole does not withhold the verdict. */
const FAR_CELLS = ['c6', 'c7'].map((id) => ({ id, region: FAR }));
/** Both signs of death have come together by then. */
const PARTITION_MS = 60_000;
/** A client that has failed for a minute pauses for up to two before it asks again. */
const RETURN_WITHIN_MS = 120_000;
const SEATED_SHARE = 0.99;
const LOOK_MS = 250;

/** P5, incident 26: a whole region is unanswered. Nobody is moved, and the operators are told why. */
export async function drillPartition(
  { hosts }: PartitionOptions,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  timeline.title(`A region is unanswered: ${hosts} hosts in each of two regions, the far one all reserve cells`);
  const fleet = await startDrillFleet({ cells: [...CELLS, ...FAR_CELLS], directors: 2 });
  const crowd = new Crowd(
    fleet.directors.map(({ origin }) => origin),
    fleet.selfHostedKey,
  );
  try {
    timeline.says('the fleet is up');
    await crowd.gather(hosts, NEAR);
    await crowd.gather(hosts, FAR);
    await Promise.all(FAR_CELLS.map(({ id }) => fleet.switchMode(id, 'reserve', timeline, signal)));
    const far = FAR_CELLS.map(({ id }) => fleet.cell(id));
    const since = await latestChange(fleet.ask);
    await partition(fleet, far, crowd, timeline, signal);
    await mend(far, crowd, timeline, signal);
    let moves = 0;
    for (const { id } of FAR_CELLS) moves += (await movesOff(fleet.ask, id, since)).length;
    timeline.judge('P5', moves === 0, `${moves} hosts were moved off the region, in the partition or after it`);
  } finally {
    crowd.stop();
    await fleet.stop();
  }
}

async function partition(
  fleet: DrillFleet,
  far: readonly DrillCell[],
  crowd: Crowd,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  const home = crowd.members.filter(({ seat }) => far.some(({ origin }) => origin === seat?.cellUrl));
  crowd.refusals.clear();
  for (const { link, databaseLink } of far) {
    // Its hosts lose their sockets as well, and ask.
    link.cut(['director', 'client']);
    link.reset(home.length);
    databaseLink.cut(['client']);
  }
  timeline.says(`the far region is cut from everybody, with ${home.length} hosts on it, for ${PARTITION_MS / 1_000} s`);
  await sleep(PARTITION_MS, undefined, { signal });
  const near = crowd.members.filter((member) => !home.includes(member));
  const kept = near.filter(keptSocket).length;
  timeline.judge('P3', kept === near.length, `${kept} of ${near.length} hosts of the other region never noticed`);
  const elsewhere = home.filter(({ seat }) => seat !== null).length;
  timeline.judge('P5', elsewhere === 0, `${elsewhere} of ${home.length} hosts of the region were given another cell`);
  const withheld = fleet.events('orca_relay_dead_cell_verdict_withheld').map(({ entry }) => String(entry.reason));
  const told = withheld.filter((reason) => reason === 'region').length;
  timeline.judge(
    '26',
    told > 0,
    `the directors said ${told} times that they withhold the verdict because of the region`,
  );
  for (const [reason, count] of crowd.refusals) timeline.figure(`told to come again: ${reason}`, String(count));
}

async function mend(far: readonly DrillCell[], crowd: Crowd, timeline: Timeline, signal: AbortSignal): Promise<void> {
  for (const { link, databaseLink } of far) {
    databaseLink.mend();
    link.mend();
  }
  const mendedAt = performance.now();
  timeline.says('the region answers again');
  const seats = () => crowd.members.map(({ seat }) => (seat === null ? null : Math.max(0, seat.at - mendedAt)));
  while (seats().includes(null) && performance.now() - mendedAt < RETURN_WITHIN_MS) {
    await sleep(LOOK_MS, undefined, { signal });
  }
  const times = seats();
  const seated = times.filter((at) => at !== null).length;
  timeline.figure('99 % seated after', seconds(shareAfter(times, SEATED_SHARE)));
  timeline.judge('P10', seated >= SEATED_SHARE * times.length, `${seated} of ${times.length} hosts are seated again`);
}

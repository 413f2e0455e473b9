import { setTimeout as sleep } from 'node:timers/promises';
import { Crowd, type Member, type Seating } from './crowd.ts';
import { type LoadReading, watchDatabase } from './database-load.ts';
import { type DrillFleet, startDrillFleet } from './drill-fleet.ts';
import { latestChange, movesOff } from './history.ts';
import { seconds, shareAfter } from './shares.ts';
import type { Timeline } from './timeline.ts';

export interface DeadReserveCellOptions {
  hosts: number;
  /** How many cells of the region are in reserve mode: with two, a booking brings the hosts to the other one. */
  reserveCells: number;
  restartDirectors: boolean;
}

const REGION = 'east';
const CELLS = ['c1', 'c2', 'c3', 'c4', 'c5'].map((id) => ({ id, region: REGION })).concat({ id: 'c6', region: 'west' });
/** Longer than the 45 s for which polls must have failed. */
const CUT_MS = 50_000;
const REDIALS = 10;
const REDIAL_MS = 8_000;
/** 60 s after the death, and one retry (P4). */
const SEATED_WITHIN_MS = 105_000;
const BASELINE_MS = 5_000;
const AFTER_RETURN_MS = 15_000;
const LOOK_MS = 100;
const LEDGER_MS = 3_000;
/** How the change log calls what the ledger wrote for a booking. */
const BOOKED = 'recorded';

/** Scenarios 37–40: a reserve cell that only its directors lose, that dies, and that comes back. */
export async function drillDeadReserveCell(
  options: DeadReserveCellOptions,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  timeline.title(`A reserve cell dies: ${options.hosts} hosts, six cells in two regions, two directors`);
  const fleet = await startDrillFleet({ cells: CELLS, directors: 2 });
  const crowd = new Crowd(
    fleet.directors.map(({ origin }) => origin),
    fleet.selfHostedKey,
  );
  try {
    timeline.says('the fleet is up');
    await crowd.gather(options.hosts, REGION);
    const reserve = ['c2', 'c3'].slice(0, options.reserveCells);
    await Promise.all(reserve.map((id) => fleet.switchMode(id, 'reserve', timeline, signal)));
    timeline.says(
      `${crowd.members.length} hosts are seated, ${crowd.on(fleet.cell('c2').origin).length} of them on c2`,
    );
    await cutFromDirectors(fleet, crowd, timeline, signal);
    const dead = await killCell(fleet, crowd, options, timeline, signal);
    await bringBack(fleet, dead, timeline, signal);
  } finally {
    crowd.stop();
    await fleet.stop();
  }
}

/** 38: the directors' polls fail, the heartbeat goes on: nobody is moved, not even who asks. */
async function cutFromDirectors(
  fleet: DrillFleet,
  crowd: Crowd,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  const c2 = fleet.cell('c2');
  const since = await latestChange(fleet.ask);
  c2.link.cut(['director']);
  timeline.says(`c2 is cut from its directors; its heartbeat goes on, for ${CUT_MS / 1_000} s`);
  const there = crowd.on(c2.origin);
  await sleep(CUT_MS - REDIAL_MS, undefined, { signal });
  c2.link.reset(REDIALS);
  await sleep(REDIAL_MS, undefined, { signal });
  // With another reserve cell at hand, whoever asks may be booked there: it has no socket.
  const moves = await movesOff(fleet.ask, 'c2', since);
  const forced = moves.filter(({ rule }) => rule !== BOOKED);
  const booked = total(moves) - total(forced);
  const back = there.filter(({ seat }) => seat?.cellUrl === c2.origin).length;
  timeline.judge(
    '38',
    forced.length === 0,
    `${total(forced)} hosts were moved off a cell that only the directors lost`,
  );
  timeline.judge(
    '38',
    back + booked === there.length && booked <= REDIALS,
    `${back} of ${there.length} are on it, of the ${REDIALS} that dialled again ${booked} were booked elsewhere`,
  );
  c2.link.mend();
  await sleep(3_000, undefined, { signal });
}

interface Dead {
  hosts: Member[];
  since: number;
}

/** 37 and 39: the cell dies, and its hosts are served elsewhere. */
async function killCell(
  fleet: DrillFleet,
  crowd: Crowd,
  options: DeadReserveCellOptions,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<Dead> {
  const c2 = fleet.cell('c2');
  const quiet = watchDatabase(fleet.ask);
  await sleep(BASELINE_MS, undefined, { signal });
  const baseline = await quiet.stop();
  const hosts = crowd.on(c2.origin);
  const before = new Map<Member, Seating>(hosts.map((member) => [member, member.seat as Seating]));
  const since = await latestChange(fleet.ask);
  crowd.refusals.clear();
  const killedAt = performance.now();
  await c2.kill();
  timeline.says(`c2 is killed with ${hosts.length} hosts on it`);
  if (options.restartDirectors) {
    for (const director of fleet.directors) {
      await director.kill();
      await director.start();
    }
    timeline.says('both directors are killed and started again');
  }
  const load = watchDatabase(fleet.ask);
  const elsewhere = ({ seat }: Member) => seat !== null && seat.cellUrl !== c2.origin;
  while (!hosts.every(elsewhere) && performance.now() - killedAt < SEATED_WITHIN_MS) {
    await sleep(LOOK_MS, undefined, { signal });
  }
  const wave = await load.stop();
  const arrivals = hosts.map((member) => (elsewhere(member) ? (member.seat as Seating).at - killedAt : null));
  tell(timeline, { arrivals, wave, baseline, crowd });
  const seated = arrivals.filter((at) => at !== null).length;
  timeline.judge(
    '37',
    seated >= 0.99 * hosts.length,
    `${seated} of ${hosts.length} hosts are seated elsewhere within ${SEATED_WITHIN_MS / 1_000} s of the death`,
  );
  const lower = hosts.filter((member) => elsewhere(member) && !isAbove(member, before)).length;
  timeline.judge('P1', lower === 0, `${seated - lower} of ${seated} came back at a higher epoch`);
  // Rows follow bookings by a poll and a flush of the ledger.
  await sleep(LEDGER_MS, undefined, { signal });
  const moves = await movesOff(fleet.ask, 'c2', since);
  const byRule = moves.map(({ rule, hosts: count }) => `${count} by ${rule}`).join(', ');
  const expected = new Set(options.reserveCells === 1 ? ['dead-reserve'] : ['dead-reserve', BOOKED]);
  timeline.judge(
    '37',
    total(moves) >= seated && moves.every((each) => expected.has(each.rule) && each.moves === each.hosts),
    `${total(moves)} moves, one a host: ${byRule}`,
  );
  timeline.judge(
    '39',
    wave.lockWaitShare <= baseline.lockWaitShare + 0.05,
    `a lock was waited for at ${percent(wave.lockWaitShare)} of the looks (${percent(baseline.lockWaitShare)} before)`,
  );
  return { hosts, since };
}

/** 40: the cell starts again: what was moved stays. */
async function bringBack(fleet: DrillFleet, dead: Dead, timeline: Timeline, signal: AbortSignal): Promise<void> {
  const c2 = fleet.cell('c2');
  const rows = await fleet.ask<{ hosts: number }>(`select hosts from relay_v1.hosts_by_cell where cell_id = 'c2'`);
  const left = rows[0]?.hosts ?? 0;
  const since = await latestChange(fleet.ask);
  await c2.start();
  timeline.says('c2 is started again');
  await sleep(AFTER_RETURN_MS, undefined, { signal });
  const back = await fleet.ask<{ hosts: number }>(
    `select count(distinct host) as hosts from relay_v1.recent_changes
     where to_cell = 'c2' and from_cell <> 'c2' and kind in ('moved', 'recorded') and id > $1`,
    [since],
  );
  timeline.judge('40', back[0]?.hosts === 0, `${back[0]?.hosts} rows went back (${left} had stayed)`);
  const twice = dead.hosts.filter(({ seat }) => seat === null).length;
  timeline.judge(
    '40',
    twice === 0,
    `${dead.hosts.length - twice} of ${dead.hosts.length} hosts still have their socket`,
  );
}

interface Told {
  arrivals: (number | null)[];
  wave: LoadReading;
  baseline: LoadReading;
  crowd: Crowd;
}

function tell(timeline: Timeline, { arrivals, wave, baseline, crowd }: Told): void {
  for (const share of [0.5, 0.99, 1]) {
    timeline.figure(`${percent(share)} seated after`, seconds(shareAfter(arrivals, share)));
  }
  timeline.figure(
    'transactions a second',
    `${wave.transactionsPerSecond.toFixed(0)} (${baseline.transactionsPerSecond.toFixed(0)} before)`,
  );
  timeline.figure('sessions waiting for a lock, at most', `${wave.mostLockWaits} (${baseline.mostLockWaits} before)`);
  for (const [reason, count] of [...crowd.refusals].sort(([, a], [, b]) => b - a).slice(0, 5)) {
    timeline.figure(`told to come again: ${reason}`, String(count));
  }
}

function isAbove(member: Member, before: Map<Member, Seating>): boolean {
  return (member.seat?.epoch ?? 0) > (before.get(member)?.epoch ?? 0);
}

function total(moves: readonly { moves: number }[]): number {
  return moves.reduce((sum, each) => sum + each.moves, 0);
}

function percent(share: number): string {
  return `${(share * 100).toFixed(0)} %`;
}

import { setTimeout as sleep } from 'node:timers/promises';
import { Crowd, keptSocket } from './crowd.ts';
import { type DrillFleet, type DrillProcess, startDrillFleet } from './drill-fleet.ts';
import { latestChange, movesOff } from './history.ts';
import { Phones } from './phones.ts';
import { seconds } from './shares.ts';
import type { Timeline } from './timeline.ts';

export interface DatabaseOutageOptions {
  hosts: number;
}

const REGION = 'east';
const CELLS = ['c1', 'c2', 'c3', 'c4'].map((id) => ({ id, region: REGION }));
const RESERVE_CELL = 'c2';
const PHONES = 20;
const OUTAGE_MS = 60_000;
const HEALTH_EVERY_MS = 2_000;
/** Incident 1: normal again by itself so soon after the return. */
const NORMAL_WITHIN_MS = 10_000;
/** Until no silence counts that the outage itself made. */
const SETTLE_MS = 70_000;
const LOOK_MS = 250;

/** P6, incidents 1, 20, 27 and V5: Postgres answers nobody for a minute. */
export async function drillDatabaseOutage(
  { hosts }: DatabaseOutageOptions,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  timeline.title(`Postgres answers nobody: ${hosts} hosts, ${PHONES} phones, three db cells and a reserve cell`);
  const fleet = await startDrillFleet({ cells: CELLS, directors: 2 });
  const crowd = new Crowd(
    fleet.directors.map(({ origin }) => origin),
    fleet.selfHostedKey,
  );
  const phones = new Phones();
  try {
    timeline.says('the fleet is up');
    const members = await crowd.gather(hosts, REGION);
    await phones.call(members.slice(0, PHONES));
    await fleet.switchMode(RESERVE_CELL, 'reserve', timeline, signal);
    timeline.says(`${hosts} hosts and ${PHONES} phones are connected`);
    const since = await latestChange(fleet.ask);
    await outage(fleet, crowd, phones, timeline, signal);
    await comeBack(fleet, crowd, phones, timeline, signal);
    let moves = 0;
    for (const { id } of CELLS) moves += (await movesOff(fleet.ask, id, since)).length;
    timeline.judge('V5', moves === 0, `${moves} hosts were moved, in the outage or after it`);
  } finally {
    phones.stop();
    crowd.stop();
    await fleet.stop();
  }
}

async function outage(
  fleet: DrillFleet,
  crowd: Crowd,
  phones: Phones,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  const processes: DrillProcess[] = [...fleet.directors, ...fleet.cells];
  phones.reset();
  for (const { databaseLink } of processes) databaseLink.cut(['client']);
  timeline.says(`every process is cut from Postgres, for ${OUTAGE_MS / 1_000} s`);
  const goneAt = performance.now();
  let unhealthy = 0;
  while (performance.now() - goneAt < OUTAGE_MS) {
    await sleep(HEALTH_EVERY_MS, undefined, { signal });
    const answers = await Promise.all(processes.map(({ origin }) => isHealthy(origin)));
    unhealthy += answers.filter((well) => !well).length;
  }
  timeline.judge('1', unhealthy === 0, `/health and /metrics of ${processes.length} processes answered 200 throughout`);
  const seated = crowd.members.filter(keptSocket).length;
  timeline.judge('P6', seated === crowd.members.length, `${seated} of ${crowd.members.length} hosts kept their socket`);
  timeline.judge(
    'P6',
    phones.lost === 0 && phones.answered >= phones.asked - PHONES,
    `phones asked ${phones.asked} times and were answered ${phones.answered} times; ${phones.lost} lost their connection`,
  );
}

async function comeBack(
  fleet: DrillFleet,
  crowd: Crowd,
  phones: Phones,
  timeline: Timeline,
  signal: AbortSignal,
): Promise<void> {
  const processes: DrillProcess[] = [...fleet.directors, ...fleet.cells];
  for (const { databaseLink } of processes) databaseLink.mend();
  const backAt = performance.now();
  timeline.says('Postgres can be reached again');
  let normalAfter: number | null = null;
  while (normalAfter === null && performance.now() - backAt < NORMAL_WITHIN_MS) {
    await sleep(LOOK_MS, undefined, { signal });
    const rows = await fleet.ask<{ live: number }>('select count(*) as live from relay_v1.fleet f where f.live');
    const ready = await Promise.all(fleet.directors.map(({ origin }) => answers(`${origin}/v1/regions`)));
    if (rows[0]?.live === CELLS.length && ready.every(Boolean)) normalAfter = performance.now() - backAt;
  }
  timeline.judge(
    '1',
    normalAfter !== null,
    `every cell is heard and every director answers after ${seconds(normalAfter)}`,
  );
  await sleep(SETTLE_MS, undefined, { signal });
  const seated = crowd.members.filter(keptSocket).length;
  timeline.judge(
    'P6',
    seated === crowd.members.length,
    `a minute later ${seated} hosts still have the socket they had`,
  );
  timeline.judge('P6', phones.lost === 0, `and ${phones.lost} phones have lost theirs`);
}

async function isHealthy(origin: string): Promise<boolean> {
  return (await answers(`${origin}/health`)) && (await answers(`${origin}/metrics`));
}

async function answers(url: string): Promise<boolean> {
  try {
    return (await fetch(url, { signal: AbortSignal.timeout(2_000) })).status === 200;
  } catch {
    return false;
  }
}

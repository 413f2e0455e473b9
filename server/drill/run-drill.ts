import { onEnd } from '../serve.ts';
import { drillDatabaseOutage } from './database-outage.ts';
import { drillDeadReserveCell } from './dead-reserve-cell.ts';
import { drillDirectorOutage } from './director-outage.ts';
import { drillPartition } from './partition.ts';
import { Timeline } from './timeline.ts';

/** Drills by the name that the command line gives them. */
export const DRILLS = {
  'dead-reserve-cell': drillDeadReserveCell,
  'director-outage': drillDirectorOutage,
  'database-outage': drillDatabaseOutage,
  partition: drillPartition,
} as const;

export type DrillName = keyof typeof DRILLS;

/** Processes get 5.5 s each, all at once, then Postgres. */
const STOP_MS = 15_000;
const INTERRUPTED = 130;

/** As the command line gives them. */
export interface DrillOptions {
  hosts?: number;
  reserveCells: number;
  restartDirectors?: boolean;
}

const DEFAULT_HOSTS: Record<DrillName, number> = {
  'dead-reserve-cell': 500,
  'director-outage': 100,
  'database-outage': 100,
  partition: 100,
};

/** Runs a drill on a fleet of its own, and ends with 0 if everything held, with 1 if not. */
export async function runDrill(name: DrillName, given: DrillOptions): Promise<void> {
  const stopped = new AbortController();
  const timeline = new Timeline(process.stdout, process.env);
  const options = {
    hosts: given.hosts ?? DEFAULT_HOSTS[name],
    reserveCells: given.reserveCells,
    restartDirectors: given.restartDirectors ?? false,
  };
  const drill = DRILLS[name](options, timeline, stopped.signal);
  const ending = onEnd(async () => {
    console.log('\nstopping …');
    stopped.abort();
    await drill.catch(() => undefined);
    process.exit(INTERRUPTED);
  }, STOP_MS);
  try {
    await drill;
  } catch (error) {
    if (ending.asked()) return;
    throw error;
  }
  if (ending.asked()) return;
  timeline.end();
  process.exit(timeline.passed ? 0 : 1);
}

/** What a chaos run must not show: pure, so that each finding can be planted. Times are milliseconds of one clock. */

export interface HostStory {
  host: string;
  /** Seats as the host took them, oldest first. */
  seatings: readonly { cell: string; epoch: number; at: number }[];
  /** How it lost them. */
  losses: readonly { code: number; reason: string; at: number; cell: string; epoch: number }[];
  /** Whether it sits somewhere at the end. */
  seated: boolean;
}

export interface PhoneStory {
  phone: string;
  /** Whether its host answered it at the end. */
  answered: boolean;
}

export interface RunStory {
  hosts: readonly HostStory[];
  phones: readonly PhoneStory[];
  /** Processes that ended and were not asked to, and of what. */
  deaths: readonly { process: string; of: string }[];
  /** How many tripped cells held a slot, the most at once, and how many may. */
  slots: { most: number; allowed: number };
}

/** A line for each promise that was broken. */
export function findingsOf(run: RunStory): string[] {
  return [
    ...run.hosts.flatMap(epochFindings),
    ...run.hosts.flatMap(movedWhileConnected),
    ...run.hosts.filter(({ seated }) => !seated).map(({ host }) => `P10 ${host} has no seat at the end`),
    ...run.phones.filter(({ answered }) => !answered).map(({ phone }) => `P6 ${phone} does not reach its host`),
    ...run.deaths.map(({ process, of }) => `35 ${process} ended by itself: ${of}`),
    ...(run.slots.most > run.slots.allowed
      ? [`P7 ${run.slots.most} cells ran on the database at once, ${run.slots.allowed} may`]
      : []),
  ];
}

/** P1 and P2 as the host saw them. */
function epochFindings({ host, seatings }: HostStory): string[] {
  const findings: string[] = [];
  const cells = new Map<number, string>();
  let highest = 0;
  for (const { cell, epoch } of seatings) {
    if (epoch < highest) findings.push(`P1 ${host} was seated at epoch ${epoch} after ${highest}`);
    const other = cells.get(epoch);
    if (other !== undefined && other !== cell)
      findings.push(`P2 ${host} was seated at epoch ${epoch} on ${other} and ${cell}`);
    cells.set(epoch, cell);
    highest = Math.max(highest, epoch);
  }
  return findings;
}

const WRONG_CELL = 4409;
/** Where two directors booked one epoch, the seat that the ledger did not get is let go (P2). */
const OUTRANKED = 'seated on a newer cell';

/** P3: a host asks only when its socket is gone, so nobody may have moved it while it had one. */
function movedWhileConnected({ host, losses }: HostStory): string[] {
  return losses
    .filter(({ code, reason }) => code === WRONG_CELL && reason !== OUTRANKED)
    .map(
      ({ cell, epoch, reason }) =>
        `P3 ${host} was moved off ${cell} at epoch ${epoch} while it was connected: ${reason}`,
    );
}

import type { Ask } from '../operator/mode-steps.ts';

const EVERY_MS = 100;

export interface LoadReading {
  /** Sessions that wait for a lock, the most seen at once. */
  mostLockWaits: number;
  /** Looks at which any session waited for a lock, of all looks. */
  lockWaitShare: number;
  transactionsPerSecond: number;
}

/** Watches the database ten times a second until `stop`; its own look is part of what it counts. */
export function watchDatabase(ask: Ask): { stop(): Promise<LoadReading> } {
  const startedAt = performance.now();
  let looks = 0;
  let waitedLooks = 0;
  let most = 0;
  let first: number | null = null;
  let last = 0;
  let stopped = false;
  const look = async () => {
    const [row] = await ask<{ waits: number; commits: number }>(
      `select (select count(*) from pg_locks where not granted) as waits,
         (select xact_commit + xact_rollback from pg_stat_database where datname = current_database()) as commits`,
    );
    const { waits, commits } = row as { waits: number; commits: number };
    looks += 1;
    if (waits > 0) waitedLooks += 1;
    most = Math.max(most, waits);
    first ??= commits;
    last = commits;
  };
  const done = (async () => {
    while (!stopped) {
      await look();
      await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
    }
  })();
  return {
    async stop() {
      stopped = true;
      await done;
      return {
        mostLockWaits: most,
        lockWaitShare: waitedLooks / Math.max(looks, 1),
        transactionsPerSecond: (last - (first ?? last)) / ((performance.now() - startedAt) / 1_000),
      };
    },
  };
}

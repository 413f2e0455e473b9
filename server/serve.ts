import pg from 'pg';
import { type Config, type Environment, type Role, readConfig } from './config.ts';
import { DatabaseError } from './database.ts';
import { type RunningProcess, type StartOptions, startProcess } from './run.ts';

/** What a parent that started this process over IPC is told. */
export interface ListeningMessage {
  listening: { origin: string; port: number };
}

const FORCED_STOP_MS = 5_500;
/** A terminal and npm may both deliver the same Ctrl-C. */
const SAME_SIGNAL_MS = 1_000;

/** Runs a role until a signal, or the loss of the parent that holds the IPC channel, ends it. */
export async function serve(env: Environment, role?: Role): Promise<void> {
  const config = readConfig(role === undefined ? env : { ...env, ORCA_RELAY_ROLE: role });
  await serveConfig(config);
}

export async function serveConfig(config: Config, options: StartOptions = {}): Promise<void> {
  const starting = startProcess(config, { processMetrics: true, ...options });
  onEnd(async () => {
    await (await starting.catch(() => null))?.stop();
  });
  announce(await starting);
}

/** What a process that is nothing else does once it runs: survives the database's rejections and tells its parent. */
export function announce(running: RunningProcess): void {
  surviveDatabaseRejections(running);
  reportUncaught(running);
  const { origin, port } = running;
  process.send?.({ listening: { origin, port } } satisfies ListeningMessage);
}

/** Calls `stop` once for the first reason to end, and ends the process after it; a second Ctrl-C does not wait. */
export function onEnd(stop: () => Promise<void>, patienceMs = FORCED_STOP_MS): { asked: () => boolean } {
  let since: number | null = null;
  const end = (reason?: NodeJS.Signals) => {
    if (since !== null) {
      if (reason === 'SIGINT' && performance.now() - since > SAME_SIGNAL_MS) process.exit(1);
      return;
    }
    since = performance.now();
    setTimeout(() => process.exit(1), patienceMs).unref();
    stop().then(
      () => process.exit(0),
      (error: Error) => {
        process.stderr.write(`orca-relay: ${error.message}\n`);
        process.exit(1);
      },
    );
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(signal, end);
  // only with a parent that holds the channel; without it cells would outlive a killed `up`
  process.on('disconnect', () => end());
  return { asked: () => since !== null };
}

/** One failover once rejected a promise nobody held, and ended every cell: rejections of the database layer are survived. */
export function surviveDatabaseRejections({ log, metrics }: Pick<RunningProcess, 'log' | 'metrics'>): void {
  const survived = metrics.counter(
    'orca_relay_unhandled_rejections_total',
    'Rejections of the database layer that nobody handled',
  );
  process.on('unhandledRejection', (reason) => {
    if (isFromDatabase(reason)) {
      survived.inc();
      log.error({ event: 'orca_relay_unhandled_rejection', error: reason });
      return;
    }
    throw reason;
  });
}

/** The last word of a process that an exception ends: without it only stderr would know. */
export function reportUncaught({ log }: Pick<RunningProcess, 'log'>): void {
  process.on('uncaughtExceptionMonitor', (error, origin) => {
    log.error({ event: 'orca_relay_process_failed', origin, error });
  });
}

const DATABASE_STACK = /[\\/]node_modules[\\/](?:pg|pg-pool|pg-protocol|pg-listen)[\\/]/;

function isFromDatabase(reason: unknown): boolean {
  if (reason instanceof DatabaseError || reason instanceof pg.DatabaseError) return true;
  return reason instanceof Error && DATABASE_STACK.test(reason.stack ?? '');
}

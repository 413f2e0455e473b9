import { setTimeout as sleep } from 'node:timers/promises';
import { type Clock, guardedClock, systemClock } from './clock.ts';
import type { Config } from './config.ts';
import { type Database, DatabaseError, openDatabase, toDatabaseError } from './database.ts';
import { notFound, type Reply, type Request, route } from './http.ts';
import { createLogger, type Logger } from './log.ts';
import { createMetrics, type Metrics } from './metrics.ts';
import { packageVersion } from './package-root.ts';
import { PeerTime } from './peer-time.ts';
import { Problem } from './problem.ts';
import { readerRefusal } from './readers.ts';
import { createReadiness, type Dependency, type ReadyVerdict } from './readiness.ts';
import type { DependencyState, RoleContext, RolePart } from './role-part.ts';
import { databaseProblem, schemaProblem } from './schema-version.ts';
import { type App, createApp, type Listener, listen } from './uws.ts';

export type { DependencyState, ReadinessReport, RoleContext, RolePart } from './role-part.ts';

export interface RunningProcess {
  port: number;
  origin: string;
  log: Logger;
  metrics: Metrics;
  /** Within 5 s, whatever its parts and the database do. Safe to call twice. */
  stop(): Promise<void>;
  /** Resolves with the reason once a part has said that this process must not go on, and it has stopped. */
  left: Promise<string>;
}

export interface StartOptions {
  clock?: Clock;
  /** Node's own figures among the metrics: for a process that is this and nothing else. */
  processMetrics?: boolean;
  /** Runs once it listens and before its parts start, so that they find themselves known. */
  beforeStart?: (context: RoleContext) => Promise<void>;
}

/** The process cannot serve. */
export class StartError extends Problem {
  override readonly name = 'StartError';
}

/** Together within the 5 s that a stop may take. */
const STOP_PARTS_MS = 3_000;
/** A database that is just restarting is waited for; a wrong address should not look like a hang. */
const DATABASE_PATIENCE_MS = 10_000;
const DATABASE_RETRY_MS = 250;
const READINESS_SQL_TIMEOUT_MS = 2_000;

/**
 * Runs the configured role in this Node process. Throws {@link StartError} or ListenError with one line to show; then nothing
 * is left running.
 */
export async function startProcess(config: Config, options: StartOptions = {}): Promise<RunningProcess> {
  const log = createLogger({
    role: config.role,
    level: config.logLevel,
    ...(config.role === 'director' ? {} : { cellId: config.cellId }),
  });
  const metrics = createMetrics({ process: options.processMetrics ?? false });
  const db = openDatabase({
    url: config.databaseUrl,
    applicationName: `orca-relay/${config.role}/${config.cellId}`.slice(0, 63),
    poolMax: config.poolMax,
    statementTimeoutMs: config.statementTimeoutMs,
    log,
    metrics,
  });
  const report = failureReport(log, metrics);
  const onTimerError = (error: unknown) => report(error, 'timer');
  const clock = guardedClock(options.clock ?? systemClock, onTimerError);
  const peerTime = new PeerTime(clock);
  let listener: Listener | null = null;
  try {
    await checkDatabase(db, log);
    let origin = config.publicUrl ?? '';
    let leave: (reason: string) => void = () => undefined;
    const leaving = new Promise<string>((resolve) => {
      leave = resolve;
    });
    const context: RoleContext = {
      config,
      db,
      log,
      metrics,
      clock,
      peerTime: guardedClock(peerTime, onTimerError),
      origin: () => origin,
      leave(reason) {
        log.error({ event: 'orca_relay_leaving', reason });
        listener?.close();
        leave(reason);
      },
    };
    const parts = await createParts(context);
    const state = { stopping: false };
    const app = createApp({ onError: report });
    // a part's own routes come first, so that it may answer more of a path than is said here
    for (const part of parts) part.register(app);
    registerCommon(app, context, parts, state);
    listener = await listen(app, config.host, config.port);
    origin = config.publicUrl ?? (config.role === 'cell' ? config.cellUrl : undefined) ?? loopback(listener.port);
    await options.beforeStart?.(context);
    for (const part of parts) await part.start();
    const { port } = listener;
    log.info({ event: 'orca_relay_listening', origin, port, version: packageVersion });
    const stop = once(() => stopProcess(context, parts, state, listener as Listener).finally(() => peerTime.stop()));
    const left = leaving.then((reason) => stop().then(() => reason));
    return { port, origin, log, metrics, stop, left };
  } catch (error) {
    listener?.destroy();
    peerTime.stop();
    await db.close();
    throw error;
  }
}

/** What throws in a handler of a peer, or in a timer, costs that peer or that turn, and is told. */
function failureReport(log: Logger, metrics: Metrics): (error: unknown, where: string) => void {
  const failed = metrics.counter('orca_relay_handlers_failed_total', 'Exceptions in handlers and timers', ['kind']);
  return (error, where) => {
    failed.inc({ kind: where === 'timer' ? 'timer' : 'handler' });
    log.error({ event: 'orca_relay_handler_failed', where, error });
  };
}

async function createParts(context: RoleContext): Promise<RolePart[]> {
  const { role } = context.config;
  const parts: RolePart[] = [];
  // loaded on demand: a director runs without the code of a cell, and the other way round
  if (role !== 'cell') parts.push((await import('./director/director.ts')).createDirector(context));
  if (role !== 'director') parts.push((await import('./cell/cell.ts')).createCell(context));
  return parts;
}

/** Reads which schema version the database has; processes never migrate. */
async function checkDatabase(db: Database, log: Logger): Promise<void> {
  const deadline = performance.now() + DATABASE_PATIENCE_MS;
  for (let told = false; ; ) {
    try {
      const problem = await schemaProblem((text) => db.query(text));
      if (problem !== null) throw new StartError(problem);
      return;
    } catch (error) {
      if (!(error instanceof DatabaseError)) throw error;
      if (!error.retryable || performance.now() > deadline) throw new StartError(databaseProblem(error));
      if (!told) log.warn({ event: 'orca_relay_database_awaited', error });
      told = true;
      await sleep(DATABASE_RETRY_MS);
    }
  }
}

function registerCommon(app: App, context: RoleContext, parts: RolePart[], state: { stopping: boolean }): void {
  const verdict = createReadiness({
    check: () => askParts(context, parts),
    graceMs: context.config.readinessGraceMs,
    clock: context.clock,
    log: context.log,
  });
  route(app, 'get', '/health', () => ({ status: 200, json: { ok: true, connectionCapacityProtocol: 2 } }));
  route(app, 'get', '/ready', async () => {
    if (state.stopping) return readyReply({ ready: false, reason: 'not_accepting' });
    return readyReply(await verdict());
  });
  route(app, 'get', '/metrics', (request) => metricsReply(context, request));
  notFound(app);
}

async function askParts(context: RoleContext, parts: RolePart[]) {
  const asked = askDatabase(context.db);
  const reports = await Promise.all(parts.map((part) => part.readiness()));
  const accepting = reports.every((report) => report.accepting);
  if (reports.every(({ local }) => local)) return { accepting, dependencies: {} };
  const dependencies: Partial<Record<Dependency, DependencyState>> = { sql: await asked };
  for (const { jwks } of reports) {
    if (jwks !== undefined && dependencies.jwks?.ok !== false) dependencies.jwks = jwks;
  }
  return { accepting, dependencies };
}

async function askDatabase(db: Database): Promise<DependencyState> {
  try {
    await db.query('select 1', [], { timeoutMs: READINESS_SQL_TIMEOUT_MS });
    return { ok: true };
  } catch (error) {
    return { ok: false, reason: toDatabaseError(error).kind };
  }
}

function readyReply(verdict: ReadyVerdict): Reply {
  if (!verdict.ready) return { status: 503, json: { error: 'dependency_unavailable' } };
  if (verdict.degraded.length === 0) return { status: 200, json: { ok: true } };
  return { status: 200, json: { ok: true, degraded: true, dependency: verdict.degraded } };
}

async function metricsReply({ config, metrics }: RoleContext, request: Request): Promise<Reply> {
  const refusal = readerRefusal(config.metricsKey, request);
  if (refusal !== null) return { status: refusal === 'unauthorized' ? 401 : 403, json: { error: refusal } };
  const text = await metrics.registry.metrics();
  return { status: 200, text, headers: { 'content-type': metrics.registry.contentType } };
}

async function stopProcess(
  { db, log }: RoleContext,
  parts: RolePart[],
  state: { stopping: boolean },
  listener: Listener,
): Promise<void> {
  const started = performance.now();
  state.stopping = true;
  log.info({ event: 'orca_relay_stopping' });
  const stopped = Promise.all(parts.map((part) => part.stop())).then(
    () => 'done',
    (error) => log.error({ event: 'orca_relay_stop_failed', error }),
  );
  const patience = sleep(STOP_PARTS_MS, 'late', { ref: false });
  if ((await Promise.race([stopped, patience])) === 'late') {
    log.error({ event: 'orca_relay_stop_late', afterMs: STOP_PARTS_MS, waitingFor: 'connections' });
  }
  listener.destroy();
  await db.close();
  log.info({ event: 'orca_relay_stopped', afterMs: Math.round(performance.now() - started) });
}

function loopback(port: number): string {
  return `http://127.0.0.1:${port}`;
}

function once(work: () => Promise<void>): () => Promise<void> {
  let running: Promise<void> | undefined;
  return () => {
    running ??= work();
    return running;
  };
}

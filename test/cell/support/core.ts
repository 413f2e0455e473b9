import { randomUUID } from 'node:crypto';
import { Writable } from 'node:stream';
import { LIMITS } from '../../../contract/index.ts';
import { AdmitModes } from '../../../server/cell/admit-modes.ts';
import { openBook } from '../../../server/cell/cell-book.ts';
import type { CellCore } from '../../../server/cell/cell-core.ts';
import { createCellMetrics } from '../../../server/cell/cell-metrics.ts';
import { CellOrders } from '../../../server/cell/cell-orders.ts';
import { Drain } from '../../../server/cell/drain.ts';
import { HostQueue } from '../../../server/cell/host-queue.ts';
import { LeaseKeeper } from '../../../server/cell/lease-keeper.ts';
import { Limiter } from '../../../server/cell/limiter.ts';
import { modeGauges } from '../../../server/cell/mode-metrics.ts';
import { SeatLog } from '../../../server/cell/seat-log.ts';
import { Seats } from '../../../server/cell/seats.ts';
import { Splicer } from '../../../server/cell/splicer.ts';
import { bookingCeiling, Units } from '../../../server/cell/units.ts';
import type { Clock } from '../../../server/clock.ts';
import { openDatabase } from '../../../server/database.ts';
import { createLogger } from '../../../server/log.ts';
import { createMetrics, type Metrics } from '../../../server/metrics.ts';
import { createRelayTokenVerifier } from '../../../server/tokens.ts';

export interface TestCore extends CellCore {
  /** What it logged, parsed. */
  lines: Record<string, unknown>[];
  registry: Metrics['registry'];
  /** How often it was told to stand down. */
  stoodDown: number;
  units: Units;
  /** How often it asked for an early heartbeat. */
  reports: number;
  close(): Promise<void>;
}

/** The parts of a cell around real Postgres, without its sockets: for tests that turn the clock by hand. */
export function startCore(databaseUrl: string, clock: Clock, over: Partial<CellCore['identity']> = {}): TestCore {
  const lines: Record<string, unknown>[] = [];
  const destination = new Writable({
    write(chunk, _encoding, done) {
      lines.push(JSON.parse(String(chunk)));
      done();
    },
  });
  const log = createLogger({ role: 'cell', level: 'debug', destination });
  const metrics = createMetrics();
  const db = openDatabase({ url: databaseUrl, applicationName: 'test/cell', poolMax: 4, log });
  const seats = new Seats();
  const units = new Units(null);
  const splicer = new Splicer({ clock, metrics, pausing: false });
  const identity = {
    cellId: 'c1',
    region: 'us-central1',
    incarnation: randomUUID(),
    startedAt: new Date(),
    ...over,
  };
  const core: TestCore = {
    lines,
    registry: metrics.registry,
    stoodDown: 0,
    reports: 0,
    identity,
    clock,
    peerTime: clock,
    db,
    log,
    metrics: createCellMetrics(metrics, {
      controls: () => seats.size,
      draining: () => core.drain.ordered,
      modes: modeGauges(() => core),
      splices: () => 0,
      pending: () => 0,
      bookings: () => core.book.size,
      units: () => units,
    }),
    tokens: createRelayTokenVerifier({ auth: null, selfHostedKey: 'k'.repeat(32), signingKey: 's'.repeat(32) }, clock),
    seats,
    seatLog: new SeatLog(clock, identity.incarnation),
    units,
    book: openBook(clock, () => core, units, bookingCeiling(null, 900)),
    activations: new HostQueue(clock, LIMITS.activationWaitMs, 8),
    background: new Limiter(4, 1_000),
    leases: new LeaseKeeper(() => core),
    orders: new CellOrders(() => core),
    drain: new Drain(() => core),
    modes: new AdmitModes(() => core),
    splicer: () => splicer,
    watermark: () => units.inclusionWatermark,
    serviceCaller: async () => null,
    inspectLease: async () => 'absent',
    origin: () => 'http://127.0.0.1:1',
    closing: () => false,
    admitted: () => true,
    reportSoon: () => {
      core.reports += 1;
    },
    standDown: () => {
      core.stoodDown += 1;
    },
    close: () => db.close(),
  };
  return core;
}

/** The value of a counter with these labels. */
export async function counted(core: TestCore, name: string, labels: Record<string, string> = {}): Promise<number> {
  const metric = await core.registry.getSingleMetric(name)?.get();
  return (metric?.values ?? [])
    .filter((sample) => Object.entries(labels).every(([key, value]) => sample.labels[key] === value))
    .reduce((sum, { value }) => sum + value, 0);
}

import type { RoleContext } from '../role-part.ts';
import type { CellRow, Change } from '../sql-interface.ts';
import { BookingClient } from './booking-client.ts';
import { BookingEstimates } from './booking-estimates.ts';
import type { CellPost } from './cell-post.ts';
import type { DeadCellVerdicts } from './dead-cell-verdicts.ts';
import { Demotions } from './demotions.ts';
import type { Desk } from './desk.ts';
import { EpochBase } from './epoch-base.ts';
import { Ledger } from './ledger.ts';
import { hostKey } from './outcomes.ts';
import { whenRowIsAhead } from './outranked-seats.ts';
import { Pace } from './pace.ts';
import { moveIn } from './pending-moves.ts';
import type { PlacementMemory } from './placement-memory.ts';
import { Reconcile } from './reconcile.ts';
import { type ReadRow, ReserveAssign } from './reserve-assign.ts';
import type { SeatMap } from './seat-map.ts';
import { Supersede } from './supersede.ts';

/** What a director has for reserve mode beyond its map: the plan for hosts that ask, and the ledger behind it. */

export interface ReserveParts {
  context: RoleContext;
  desk: Desk;
  directorId: string;
  fleet: { readonly cells: readonly CellRow[] };
  memory: PlacementMemory;
  post: CellPost;
  seats: SeatMap;
  verdicts: DeadCellVerdicts;
}

export interface Reserve {
  assign: ReserveAssign;
  start(): void;
  changed(change: Change): void;
  /** Changes may have been missed. */
  resynced(): void;
  /** The list of cells was read: the database answers. */
  listed(): void;
  stop(): Promise<void>;
}

export function openReserve({
  context,
  desk,
  directorId,
  fleet,
  memory,
  post,
  seats,
  verdicts,
}: ReserveParts): Reserve {
  const { clock, config, db, log, metrics, peerTime } = context;
  const { random } = Math;
  const client = new BookingClient({ clock, peerTime, metrics, post, directorId });
  const demotions = new Demotions({ fleet, log, metrics, peerTime, post });
  const supersede = new Supersede(fleet, seats, demotions);
  const ledger: Ledger = new Ledger({
    clock,
    log,
    metrics,
    record: (rows, timeoutMs) => db.call('record_seats', { rows }, { timeoutMs }),
    onStale: whenRowIsAhead({ clock, demotions, ledger: () => ledger, memory, seats }),
  });
  const reconcile = new Reconcile({ clock, fleet, ledger, random, seats });
  const base = new EpochBase({ db, memory });
  const assign = new ReserveAssign({
    client,
    clock,
    estimates: new BookingEstimates(clock, seats),
    fleet,
    log,
    memory,
    metrics,
    mode: config.reservePlacement,
    pace: new Pace(clock),
    poolWaiters: () => db.waiters(),
    random,
    readRow: createReadRow({ base, clock, db, desk }),
    region: config.region,
    seats,
    supersede,
    verdicts,
  });
  seats.onPage((cellId, { joins }) => {
    reconcile.read(cellId);
    for (const { reservedBy, ...join } of joins) {
      if (reservedBy !== directorId) continue;
      const seat = { cellId, epoch: join.epoch };
      ledger.add(join, seat);
      // an order of ours to its older seats may have been lost
      supersede.below(join, seat);
    }
  });
  seats.onCell(({ type, cellId }) => {
    if (type === 'gap') reconcile.gap(cellId);
  });
  metrics
    .gauge('orca_relay_reserve_placement', '1 for how this director places hosts on reserve cells', ['mode'])
    .set({ mode: config.reservePlacement }, 1);

  return {
    assign,
    start() {
      log.info({ event: 'orca_relay_reserve_placement', mode: config.reservePlacement, directorId });
      reconcile.start();
    },
    changed(change) {
      const found = moveIn(change);
      if (found !== null) memory.rowIs(found.host, found.move);
    },
    resynced() {
      memory.forgetRows();
      base.want();
    },
    listed: () => void base.refresh(),
    async stop() {
      reconcile.stop();
      client.stop();
      await ledger.stop();
    },
  };
}

export interface ReadRowParts extends Pick<RoleContext, 'clock' | 'db'> {
  base: EpochBase;
  desk: Pick<Desk, 'inLane'>;
}

/** By its primary key, and within the budget of the sticky lane. */
export function createReadRow({ base, clock, db, desk }: ReadRowParts): ReadRow {
  return async ({ userId, relayHostId }, timeoutMs, signal) => {
    const answered = await desk.inLane('sticky', hostKey(userId, relayHostId), signal, async () => {
      const giveUpAt = clock.now() + timeoutMs;
      const rows = await db.call('host_row', { user_id: userId, relay_host_id: relayHostId }, { timeoutMs });
      // after the row: a failover between the two makes the base too high, and never too low
      return (await base.read(Math.max(1, giveUpAt - clock.now()))) ? rows : null;
    });
    if (!answered.ok) return answered.refusal.reason === 'database' ? 'failed' : answered;
    if (answered.value === null) return 'failed';
    const [row] = answered.value;
    return { row: row === undefined ? null : { cellId: row.cell_id, epoch: row.epoch } };
  };
}

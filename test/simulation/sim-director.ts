import type { DemoteRequest, ReserveRequest } from '../../contract/booking.ts';
import type { Config } from '../../server/config.ts';
import type { CellPost } from '../../server/director/cell-post.ts';
import { DeadCellVerdicts } from '../../server/director/dead-cell-verdicts.ts';
import { type Desk, openDesk } from '../../server/director/desk.ts';
import { type Decision, findPlace } from '../../server/director/find-place.ts';
import { Fleet, isAboutCells } from '../../server/director/fleet.ts';
import { PendingMoves } from '../../server/director/pending-moves.ts';
import { PlacementMemory } from '../../server/director/placement-memory.ts';
import { openReserve, type Reserve } from '../../server/director/reserve.ts';
import type { FetchPage } from '../../server/director/seat-feed-client.ts';
import { SeatMap } from '../../server/director/seat-map.ts';
import { SeatPoller } from '../../server/director/seat-poller.ts';
import type { HostName } from '../../server/director/seat-view.ts';
import { createLogger } from '../../server/log.ts';
import { createMetrics } from '../../server/metrics.ts';
import type { RoleContext } from '../../server/role-part.ts';
import type { ChangeCursor } from '../../server/sql-interface.ts';
import type { SimCell } from './sim-cell.ts';
import type { SimDatabase } from './sim-database.ts';
import type { VirtualTime } from './virtual-time.ts';

const CHANGE_POLL_MS = 1_000;

/** How a director hears its cells: milliseconds of delay, and whether a message is lost. */
export interface Wire {
  lagMs(cell: SimCell): number;
  loses(cell: SimCell): boolean;
  /** So many other cells get a booking too. */
  echoes: number;
}

export interface SimWorld {
  time: VirtualTime;
  db: SimDatabase;
  config: Config;
  cells: ReadonlyMap<string, SimCell>;
  wire: Wire;
}

/** A director's memory, poller, plan, desk and ledger, put together as the process does it, on simulated wires. */
export class SimDirector {
  readonly seats: SeatMap;
  readonly #world: SimWorld;
  readonly #poller: SeatPoller;
  readonly #fleet: Fleet;
  readonly #reserve: Reserve;
  readonly #desk: Desk;
  #cursor: ChangeCursor | null = null;
  #stopped = false;

  /** @param directorId names its bookings */
  constructor(world: SimWorld, directorId: string) {
    this.#world = world;
    const { time: clock, db, config } = world;
    const log = createLogger({ role: 'director', level: 'silent' });
    const metrics = createMetrics();
    const context: RoleContext = {
      config,
      db,
      log,
      metrics,
      clock,
      peerTime: clock,
      origin: () => 'http://director.localhost',
      leave: () => undefined,
    };
    this.#fleet = new Fleet(db, log, metrics, clock);
    this.seats = new SeatMap(clock, { retentionMs: config.ownerRetentionMs });
    const verdicts = new DeadCellVerdicts(log, metrics, clock);
    this.#poller = new SeatPoller({
      map: this.seats,
      cells: () => this.#fleet.list,
      feedCells: config.seatFeedCells,
      placementOn: true,
      fetchPage: this.#fetchPage(),
      log,
      metrics,
      clock,
      peerTime: clock,
      onRound: ({ cells, lateMs }) => verdicts.round(cells, lateMs),
      onPolled: ({ cellId, outcome }) => verdicts.polled(cellId, outcome),
    });
    this.#fleet.onRead(() => {
      this.#poller.listed();
      this.#reserve.listed();
    });
    const pending = new PendingMoves(clock);
    const memory = new PlacementMemory({ clock, mode: config.reservePlacement, pending, seats: this.seats });
    this.seats.onPage((cellId) => pending.settle(cellId, this.seats));
    this.#desk = openDesk(context, { memory, judge: (cellId) => verdicts.of(cellId) });
    const post = this.#post();
    this.#reserve = openReserve({
      context,
      desk: this.#desk,
      directorId,
      fleet: this.#fleet,
      memory,
      post,
      seats: this.seats,
      verdicts,
    });
  }

  start(): void {
    void this.#fleet.refresh();
    this.#poller.start();
    this.#reserve.start();
    void this.#follow();
  }

  ask(host: HostName, region: string | null): Promise<Decision> {
    const { signal } = new AbortController();
    return findPlace(this.#desk, this.#reserve.assign, { host, region, signal });
  }

  /** The process is gone. What it had yet to write is lost. */
  kill(): void {
    this.#stopped = true;
    this.#desk.stop();
    void this.#fleet.stop();
    void this.#poller.stop();
    void this.#reserve.stop();
  }

  async #follow(): Promise<void> {
    const { time, db } = this.#world;
    while (!this.#stopped) {
      const page = await db.call('changes_since', { cursor: this.#cursor, max_rows: 500 }).catch(() => null);
      if (this.#stopped) return;
      if (page !== null) {
        this.#cursor = page.cursor;
        if (page.resync !== null) {
          this.#reserve.resynced();
          await this.#fleet.refresh();
        }
        for (const change of page.changes) {
          if (isAboutCells(change.kind)) void this.#fleet.refresh();
          this.#reserve.changed(change);
        }
      }
      await time.sleep(CHANGE_POLL_MS);
    }
  }

  #fetchPage(): FetchPage {
    const { cells, time, wire } = this.#world;
    return async ({ cellId }, { cursor }) => {
      const cell = cells.get(cellId) as SimCell;
      const lagMs = wire.lagMs(cell);
      if (lagMs > 0) await time.sleep(lagMs / 2);
      if (!cell.answers || this.#stopped) return { ok: false, failure: 'unreachable' };
      const page = structuredClone(cell.page(cursor));
      if (lagMs > 0) await time.sleep(lagMs / 2);
      return { ok: true, page };
    };
  }

  #post(): CellPost {
    const { cells, time, wire } = this.#world;
    return async ({ cellId }, path, json) => {
      const cell = cells.get(cellId) as SimCell;
      await time.sleep(1 + wire.lagMs(cell) / 2);
      if (!cell.answers || wire.loses(cell)) throw new Error('unreachable');
      const body: unknown = JSON.parse(json);
      if (wire.echoes > 0 && path === '/internal/reserve') {
        for (const other of [...cells.values()].slice(-wire.echoes)) other.book(body as ReserveRequest);
      }
      const answer =
        path === '/internal/reserve'
          ? { v: 1, results: cell.book(body as ReserveRequest) }
          : { v: 1, outcome: cell.demote(body as DemoteRequest) };
      await time.sleep(1 + wire.lagMs(cell) / 2);
      if (wire.loses(cell)) throw new Error('the answer was lost');
      return answer;
    };
  }
}

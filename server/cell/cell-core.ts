import type { Clock } from '../clock.ts';
import type { Database } from '../database.ts';
import type { Logger } from '../log.ts';
import type { ServiceIdentity } from '../service-token.ts';
import type { AssignmentLease, LeaseClass, RelayTokenVerifier } from '../tokens.ts';
import type { AdmitModes } from './admit-modes.ts';
import type { Book } from './book.ts';
import type { CellMetrics } from './cell-metrics.ts';
import type { CellOrders } from './cell-orders.ts';
import type { Drain } from './drain.ts';
import type { HostQueue } from './host-queue.ts';
import type { LeaseKeeper } from './lease-keeper.ts';
import type { Limiter } from './limiter.ts';
import type { SeatLog } from './seat-log.ts';
import type { Seats } from './seats.ts';
import type { Splicer } from './splicer.ts';

/** Who this process is to the database: one incarnation of one cell. */
export interface CellIdentity {
  readonly cellId: string;
  readonly region: string;
  /** Minted at every start. */
  readonly incarnation: string;
  readonly startedAt: Date;
}

/** What every part of a cell works with. */
export interface CellCore {
  readonly identity: CellIdentity;
  readonly clock: Clock;
  /** What hosts and phones are held to. */
  readonly peerTime: Clock;
  readonly db: Database;
  readonly log: Logger;
  readonly metrics: CellMetrics;
  readonly tokens: RelayTokenVerifier;
  readonly seats: Seats;
  readonly seatLog: SeatLog;
  readonly book: Book;
  readonly activations: HostQueue;
  readonly leases: LeaseKeeper;
  readonly orders: CellOrders;
  readonly drain: Drain;
  readonly modes: AdmitModes;
  /** Calls that nobody waits for: releases, re-acquisitions. */
  readonly background: Limiter;
  splicer(): Splicer;
  /** Of the admission ledger, as it stands now. */
  watermark(): number;
  /** Null for a token that lets no director speak to this cell. */
  serviceCaller(token: string): Promise<ServiceIdentity | null>;
  inspectLease(lease: string | undefined, expected: Omit<AssignmentLease, 'cellUrl'>): Promise<LeaseClass>;
  /** This cell's public origin, as hosts dial it: it goes into the proof. */
  origin(): string;
  /** True from SIGTERM on, and once another process has this cell: nobody is let in any more. */
  closing(): boolean;
  /** False until the first heartbeat was accepted. */
  admitted(): boolean;
  /** Something happened that the next heartbeat should not wait for. */
  reportSoon(): void;
  /** Another process of this cell has taken over: close everybody and go. */
  standDown(): void;
}

/** The caller's half of every call that a cell makes. */
export function callerOf(core: { identity: CellIdentity }): { cell_id: string; incarnation: string } {
  return { cell_id: core.identity.cellId, incarnation: core.identity.incarnation };
}

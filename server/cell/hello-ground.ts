import { CLOSE } from '../../contract/index.ts';
import type { AdmitMode } from '../sql-interface.ts';
import type { Booking } from './book.ts';
import type { CellCore } from './cell-core.ts';
import type { Leaver } from './seat-log.ts';
import type { HostName } from './seats.ts';
import { isOverloaded } from './upgrade-rules.ts';

/**
 * What lets a host in: a booking, the seat that it has here or had, the lease it shows, or the database's word. `shed`: only
 * the database could tell, and it has no time for strangers.
 */
export type HelloGround = 'booking' | 'seat' | 'ticket' | 'database' | 'shed';

export interface HelloView {
  mode: AdmitMode;
  /** That the host says. */
  epoch: number;
  /** It is booked at exactly this epoch. */
  booked: boolean;
  /** A later epoch of this host is known to be its own. */
  outranked: boolean;
  /** `drained`: it was told to leave, or demoted. */
  seat: { epoch: number; drained: boolean } | undefined;
  /** Within the last 10 min. */
  leaver: Pick<Leaver, 'epoch' | 'closeCode'> | undefined;
  /** The host shows a valid lease for this seat, and leases admit here. */
  ticket: boolean;
  shedding: boolean;
}

/** `reserve-mode` 1.3, first match wins. All but the last two are the cell's own memory: no read, and no lease taken. */
export function helloGround(view: HelloView): HelloGround {
  if (view.mode !== 'reserve') return 'database';
  if (!view.outranked) {
    if (view.booked) return 'booking';
    if (isSeated(view)) return 'seat';
    if (view.ticket) return 'ticket';
  }
  return view.shedding ? 'shed' : 'database';
}

function isSeated({ epoch, seat, leaver }: HelloView): boolean {
  if (seat !== undefined) return seat.epoch === epoch && !seat.drained;
  return leaver?.epoch === epoch && mayRejoin(leaver);
}

/** A host that was sent away is not let back in by the memory of having been here. */
function mayRejoin({ closeCode }: Pick<Leaver, 'closeCode'>): boolean {
  return closeCode !== CLOSE.DRAINING && closeCode !== CLOSE.WRONG_CELL;
}

/** What a host shows at its hello, beside what the cell remembers of it. */
export interface Shown {
  epoch: number;
  booking: Booking | null;
  ticket: boolean;
}

/** On what a host stands here now, by a mode that was read for it. */
export function groundOf(core: CellCore, host: HostName, mode: AdmitMode, shown: Shown): HelloGround {
  const { epoch, booking, ticket } = shown;
  return helloGround({
    mode,
    epoch,
    booked: booking !== null && core.book.honours(booking),
    outranked: isOutranked(core, host, epoch),
    seat: core.seats.of(host),
    leaver: core.seatLog.leaver(host),
    ticket,
    shedding: isOverloaded(core.db),
  });
}

/**
 * Whether a later epoch of the host is known to be its own. Where seats are taken from memory the database may not know it
 * yet: the row trails the seat, and names the one before.
 */
export function isOutranked(core: CellCore, host: HostName, epoch: number): boolean {
  if (core.seats.hasLeft(host, epoch)) return true;
  return core.modes.effective === 'reserve' && (core.seats.of(host)?.epoch ?? 0) > epoch;
}

/** Whether a host that asks for a socket may turn out, at its hello, to need no database: then it is not shed. */
export function isExpected(core: CellCore, host: HostName): boolean {
  if (core.seats.of(host) !== undefined) return true;
  if (core.modes.raw !== 'reserve') return false;
  const leaver = core.seatLog.leaver(host);
  return core.book.epochOf(host) > 0 || (leaver !== undefined && mayRejoin(leaver));
}

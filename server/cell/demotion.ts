import type { DemoteOutcome, DemoteRequest } from '../../contract/booking.ts';
import { hostDigest } from '../log.ts';
import type { CellCore } from './cell-core.ts';

/**
 * Lets go of a seat that a newer one outranks: no phones from now on, closed 4409 a minute later. It names the seat as the
 * feed told it, so that a host which has sat down again meanwhile is not hit. Asking again is answered and changes nothing.
 */
export function demoteSeat(core: CellCore, request: DemoteRequest): DemoteOutcome {
  const outcome = demote(core, request);
  core.metrics.demotes.inc({ outcome });
  return outcome;
}

function demote(core: CellCore, { userId, relayHostId, epoch, joinedAt }: DemoteRequest): DemoteOutcome {
  if (core.modes.raw !== 'reserve') return 'off';
  const host = { userId, relayHostId };
  const session = core.seats.of(host);
  if (session === undefined) {
    // It has left by itself, and would be let back in from memory.
    core.seats.noteLeft(host, epoch + 1);
    return 'not-seated';
  }
  if (session.epoch !== epoch || core.seatLog.joinedAt(session) !== joinedAt) return 'not-seated';
  if (session.demoted) return 'already-demoted';
  core.seats.noteLeft(host, epoch + 1);
  session.demote();
  core.log.info({
    event: 'orca_relay_cell_seat_demoted',
    host: hostDigest(userId, relayHostId),
    epoch,
    generation: session.generation,
    splices: session.spliceCount,
  });
  return 'demoted';
}

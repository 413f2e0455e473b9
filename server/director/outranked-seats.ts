import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import { type Demotions, isUnsettled } from './demotions.ts';
import type { KnownSeat } from './known-rows.ts';
import type { Ledger } from './ledger.ts';
import type { PlacementMemory } from './placement-memory.ts';
import type { HostName, SeatView } from './seat-view.ts';

export interface OutrankedParts {
  clock: Clock;
  demotions: Demotions;
  ledger: () => Pick<Ledger, 'add'>;
  memory: PlacementMemory;
  seats: Pick<SeatView, 'seats'>;
}

/**
 * What follows when a row turns out to be ahead of a seat (03, ledger): the next epoch of the host lies above the row, and the
 * seat is demoted, unless the row names its own cell, which sees to it. While the cell does not answer the row is asked
 * again, so that an order is only ever given on what holds then.
 */
export function whenRowIsAhead({ clock, demotions, ledger, memory, seats }: OutrankedParts) {
  return (host: HostName, seat: KnownSeat, row: KnownSeat): void => {
    memory.rowIs(host, row);
    if (row.cellId === seat.cellId) return;
    const held = seats.seats(host).find(({ cellId, epoch }) => cellId === seat.cellId && epoch === seat.epoch);
    if (held === undefined) return;
    void demotions.demote(host, held, 'behind-row', row).then((outcome) => {
      // `not-seated`: it has left, or has another socket by now, and the next poll says which.
      const again = isUnsettled(outcome) || outcome === 'not-seated';
      if (again) clock.setTimeout(() => ledger().add(host, seat), LIMITS.bookingTimeoutMs);
    });
  };
}

import { LIMITS } from '../../contract/index.ts';
import type { Clock } from '../clock.ts';
import { Book } from './book.ts';
import type { CellCore } from './cell-core.ts';
import type { Units } from './units.ts';

/** The book of a cell, as it stands among the cell's other parts. The core holds its book, so this asks for the core. */
export function openBook(clock: Clock, coreOf: () => CellCore, units: Units, ceiling: number): Book {
  return new Book({
    clock,
    units,
    ceiling,
    // A process that Postgres has not heard lets nobody in, so it promises nothing.
    mode: () => (coreOf().admitted() ? coreOf().modes.raw : 'db'),
    draining: () => coreOf().closing() || coreOf().drain.ordered,
    intakePerSec: () => coreOf().modes.flags.intakePerSec ?? LIMITS.defaultIntakePerSec,
    seatedEpoch: (host) => {
      const session = coreOf().seats.of(host);
      return session === undefined || session.demoted ? 0 : session.epoch;
    },
    leftEpoch: (host) => coreOf().seats.leftEpoch(host),
    booked: ({ host, epoch, reservedBy }) => coreOf().seatLog.reserved(host, epoch, reservedBy),
    ended: (end) => coreOf().metrics.bookingEnds.inc({ end }),
  });
}

import type { BookingResult } from '../../contract/booking.ts';
import type { AdmitMode } from '../sql-interface.ts';

/** What an ask for a seat is judged by, as it stands this very moment. */
export interface BookingView {
  mode: AdmitMode;
  dryRun: boolean;
  draining: boolean;
  sticky: boolean;
  /** Asked for. */
  epoch: number;
  /** Of the host's seat here; 0 without one, and for one that was demoted. */
  seated: number;
  /** Of the booking that the host has here, 0 without one. */
  booked: number;
  /** From this epoch on the host is known to belong elsewhere, or here anew; 0 if nothing of the kind is known. */
  left: number;
  /** A lower booking of the host hands its own unit over, or another one is free. */
  unitFree: boolean;
  intakeFree: boolean;
}

/** `nothing` and `extend` go with a yes that costs nothing. */
export interface BookingDecision extends BookingResult {
  effect: 'nothing' | 'extend' | 'book';
}

const no = (outcome: BookingDecision['outcome']): BookingDecision => ({ outcome, effect: 'nothing' });
const yes = (effect: BookingDecision['effect']): BookingDecision => ({ outcome: 'ok', effect });

/** First match wins. A dry run is answered as a real ask would be, also by a cell in db mode, and has no effect. */
export function decideBooking(view: BookingView): BookingDecision {
  const { dryRun, sticky, epoch } = view;
  if (view.mode !== 'reserve' && !dryRun) return no('off');
  if (view.draining) return no('draining');
  const known = Math.max(view.seated, view.booked);
  if (view.left > epoch) return { outcome: 'seated-newer', epoch: Math.max(known, view.left), effect: 'nothing' };
  if (sticky ? known > epoch : known >= epoch) return { outcome: 'seated-newer', epoch: known, effect: 'nothing' };
  if (sticky && view.seated === epoch) return yes('nothing');
  if (sticky && view.booked === epoch) return yes(dryRun ? 'nothing' : 'extend');
  if (!view.unitFree) return no('full');
  if (!sticky && !view.intakeFree) return no('intake');
  return yes(dryRun ? 'nothing' : 'book');
}

import { LIMITS } from '../../contract/index.ts';
import type { Change, ChangeKind } from '../sql-interface.ts';
import type { CellCore } from './cell-core.ts';

/** What a cell does about a change that concerns it; flags, mode and drain orders are read by `cell_orders`. */
export const CHANGE_REACTIONS: Record<ChangeKind, 'leave-seat' | 'nothing'> = {
  placed: 'nothing',
  moved: 'leave-seat',
  recorded: 'leave-seat',
  granted: 'nothing',
  lease_ended: 'nothing',
  admission: 'nothing',
  mode: 'nothing',
  flags: 'nothing',
  effective_mode: 'nothing',
  drain: 'nothing',
  migration: 'nothing',
  fence: 'nothing',
  cell_registered: 'nothing',
  cell_retired: 'nothing',
  incarnation: 'nothing',
};

/** A host that now belongs elsewhere, or here at a higher epoch, loses the seat it has here: at once, or when its lease retires. */
export function reactToChange(core: CellCore, change: Change): void {
  if (CHANGE_REACTIONS[change.kind] === 'nothing' || change.from_cell !== core.identity.cellId) return;
  if (change.user_id === null || change.relay_host_id === null || change.epoch === null) return;
  const host = { userId: change.user_id, relayHostId: change.relay_host_id };
  // An activation at the old epoch may be on its way back from the database.
  core.seats.noteLeft(host, change.epoch);
  const session = core.seats.of(host);
  if (session === undefined || session.epoch >= change.epoch) return;
  const retireUntil = change.detail?.retire_until;
  if (typeof retireUntil === 'number' && change.detail?.forced !== true) {
    core.metrics.changes.inc({ kind: change.kind, action: 'retire' });
    // Both times are the database's own.
    session.drain(Math.min(retireUntil - change.at, LIMITS.maxGraceMs), 'retired');
    return;
  }
  core.metrics.changes.inc({ kind: change.kind, action: 'close' });
  session.end('moved');
}

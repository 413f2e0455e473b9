import type { AccountWhereabouts, Whereabouts } from '../../contract/whereabouts.ts';
import type { Paint } from '../dev/child-log.ts';
import { closeWords } from './event-lines.ts';
import { ago } from './fleet-table.ts';

/** Where a host is, for a person. */

const LABEL_WIDTH = 10;

const SAYS: Readonly<Record<string, string>> = {
  pending: 'moved there just now; no feed shows it yet',
  fresh: 'its feed shows the host there',
  retained: 'its feed last showed the host there, and is not answering now',
  row: 'by the row in the database',
};

export function whereaboutsText(found: Whereabouts, paint: Paint): string {
  const notes = [
    !found.store.ok && paint('yellow', `The database could not be asked (${found.store.reason}): rows are not shown.`),
    !found.mapComplete && paint('yellow', 'This director has not heard every cell yet.'),
    found.accounts.length === 0 && 'Nobody has heard of this host.',
    found.accounts.length > 1 && paint('yellow', `${found.accounts.length} accounts have a host of this id.`),
  ];
  const blocks = found.accounts.map((account) => accountText(account, found.at, paint));
  return [...notes.filter(Boolean), ...blocks].join('\n\n');
}

function accountText(account: AccountWhereabouts, at: number, paint: Paint): string {
  const lines = [
    `${paint('bold', 'Host')} ${account.host} ${paint('dim', '(so logs and events name it)')}`,
    ...owner(account, at, paint),
    ...row(account, at, paint),
    ...each('seats', account.seats, (seat) => {
      const read = seat.ageMs === null ? '' : `, read ${brief(seat.ageMs)} ago`;
      return `${seat.cellId} at epoch ${seat.epoch}, ${seat.state}, since ${brief(at - seat.joinedAt)}${read}`;
    }),
    ...each('left', account.left, ({ cellId, epoch, closeCode, ageMs }) => {
      return `${cellId} at epoch ${epoch}, ${brief(ageMs)} ago${closeWords(closeCode)}`;
    }),
    ...each('pending', account.pending === null ? [] : [account.pending], ({ cellId, epoch, source, ageMs }) => {
      const by = source === 'own' ? 'this director' : 'the database';
      return `${cellId} at epoch ${epoch}, given by ${by} ${brief(ageMs)} ago`;
    }),
    ...each('epochs', account.floor > (account.owner?.epoch ?? 0) ? [account] : [], ({ floor, bookedEpoch }) => {
      const booked = bookedEpoch === floor ? ': a seat was booked at it' : '';
      return `up to ${floor} were given out${booked}`;
    }),
  ];
  return lines.join('\n');
}

function owner(account: AccountWhereabouts, at: number, paint: Paint): string[] {
  const { owner, unknown } = account;
  if (owner === null) {
    const why = unknown === 'store_unavailable' ? 'the database could not be asked' : 'no row, and no cell shows it';
    return [labelled('owner', paint('yellow', `unknown: ${why}`))];
  }
  const { cellId, cellUrl, epoch, live, saidBy, ageMs } = owner;
  const age = saidBy === 'row' ? '' : ` (${brief(ageMs)} ago)`;
  return [
    labelled('owner', `${paint('bold', cellId)} at epoch ${epoch}${live ? '' : paint('red', ', which is not live')}`),
    labelled('', paint('dim', `${SAYS[saidBy] ?? saidBy}${age}`)),
    ...(cellUrl === null ? [] : [labelled('', paint('dim', cellUrl))]),
    ...(isConnected(account, at) ? [] : [labelled('', paint('yellow', 'not connected, as far as is known'))]),
  ];
}

function isConnected({ owner, row, seats }: AccountWhereabouts, at: number): boolean {
  const held = row?.leases.filter(({ state, expiresAt }) => state === 'active' && expiresAt > at) ?? [];
  return [...seats, ...held].some(({ cellId, epoch }) => cellId === owner?.cellId && epoch === owner.epoch);
}

function row({ owner, row }: AccountWhereabouts, at: number, paint: Paint): string[] {
  if (row === null) return [];
  const same = row.cellId === owner?.cellId && row.epoch === owner.epoch;
  const trails = owner !== null && row.epoch < owner.epoch ? paint('yellow', ', behind the seat') : '';
  const where = same ? 'the same' : `${row.cellId} at epoch ${row.epoch}${trails}`;
  const about = [row.region, row.admitMode === 'reserve' && 'reserve'].filter(Boolean).join(', ');
  const { migration } = row;
  return [
    labelled('row', `${where}${about === '' ? '' : ` (${about})`}, last active ${brief(at - row.lastActivityAt)} ago`),
    ...each('leases', row.leases, ({ cellId, epoch, state, units, expiresAt }) => {
      const left = expiresAt - at;
      const until = left > 0 ? `for ${brief(left)} more` : `over since ${brief(-left)}`;
      return `${cellId} at epoch ${epoch}, ${state}, ${units} ${units === 1 ? 'unit' : 'units'}, ${until}`;
    }),
    ...each('migration', migration === null ? [] : [migration], ({ from, to, pinned, registered, openedAt }) => {
      const how = [pinned && 'pinned', registered && 'arrived'].filter(Boolean).join(', ');
      return `${from} → ${to}, opened ${brief(at - openedAt)} ago${how === '' ? '' : `, ${how}`}`;
    }),
  ];
}

function each<T>(label: string, items: readonly T[], text: (item: T) => string): string[] {
  return items.map((item, index) => labelled(index === 0 ? label : '', text(item)));
}

function labelled(label: string, text: string): string {
  return `  ${label.padEnd(LABEL_WIDTH)} ${text}`;
}

/** Clocks of two machines differ a little: nothing is younger than now. */
function brief(ms: number): string {
  return ms < 950 ? `${(Math.max(0, ms) / 1_000).toFixed(1)} s` : ago(Math.max(0, ms));
}

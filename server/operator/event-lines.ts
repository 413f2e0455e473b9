import { CLOSE } from '../../contract/close-codes.ts';
import type { EventData, GapReason } from '../../contract/events.ts';
import type { Paint } from '../dev/child-log.ts';
import type { Told } from './event-reader.ts';
import { ago, withheldWords } from './fleet-table.ts';

/** Events as lines for a person: when, where, what, and whom. */

const WHERE_WIDTH = 16;
const WHAT_WIDTH = 46;

const GAPS: Record<GapReason, string> = {
  start: 'the director has started anew',
  gaps: 'late changes may be missing',
  timeline: 'the database has failed over',
  pruned: 'that was too long ago for the log',
  ahead: 'the database has lost changes',
  unknown_id: 'the director cannot tell where this reader was',
};

/** Why a cell's feed is read no longer. */
const REASONS: Readonly<Record<string, string>> = {
  unauthorized: 'it refuses the director',
  no_feed: 'it has no feed',
  removed: 'it is no longer in the fleet',
};

/** WebSocket's own codes, and the relay's by their names. */
const CODES: Readonly<Record<number, string>> = {
  1000: 'it closed',
  1001: 'it went away',
  1006: 'its connection broke',
  ...Object.fromEntries(Object.entries(CLOSE).map(([name, code]) => [code, name.toLowerCase().replaceAll('_', ' ')])),
};

const VERDICTS: Record<EventData<'verdict_given'>['verdict'], string> = {
  dead: 'its verdict is given: it is dead, its hosts may leave',
  'not-dead': 'no verdict on it is withheld any more',
};

/** Whether an event is about this cell; what is about the stream itself is about every one. */
export function concerns(told: Told, cellId: string): boolean {
  if (told.event === 'hello' || told.event === 'gap') return true;
  if (told.event === 'change') return told.data.from === cellId || told.data.to === cellId;
  return told.data.cellId === cellId;
}

/** @param now epoch milliseconds: for a gap, which carries no time of its own */
export function eventLine(told: Told, now: number, paint: Paint): string {
  switch (told.event) {
    case 'hello':
      return paint('dim', greeting(told.data));
    case 'gap':
      return line(now, '', `something may be missing here: ${gapWords(told.data.reason)}`, '', paint, 'yellow');
    case 'change': {
      const { at, words, host, epoch } = told.data;
      return line(at, route(told.data), words, whom(host, epoch), paint, IMPORTANT.test(words) ? 'bold' : null);
    }
    case 'cell_open':
      return line(told.data.at, told.data.cellId, 'its seats are read', '', paint, null);
    case 'cell_gap':
      return line(told.data.at, told.data.cellId, 'its seats were read anew', '', paint, null);
    case 'cell_unavailable':
      return line(
        told.data.at,
        told.data.cellId,
        `its seats are not read: ${unavailable(told.data)}`,
        '',
        paint,
        'red',
      );
    case 'verdict_withheld':
      return line(told.data.at, told.data.cellId, withheldWords(told.data), '', paint, 'red');
    case 'verdict_given':
      return line(told.data.at, told.data.cellId, VERDICTS[told.data.verdict], '', paint, 'yellow');
    case 'host_joined':
      return line(told.data.at, told.data.cellId, 'host connected', whom(told.data.host, told.data.epoch), paint, null);
    case 'host_left': {
      const { at, cellId, host, epoch, closeCode } = told.data;
      return line(at, cellId, `host left${closeWords(closeCode)}`, whom(host, epoch), paint, null);
    }
  }
}

export function closeWords(code: number | undefined): string {
  if (code === undefined) return '';
  const words = CODES[code];
  return words === undefined ? ` (${code})` : `: ${words} (${code})`;
}

/** What an operator did, or has to know. */
const IMPORTANT = /^(?:host moved|admission|mode|drain|fence|cell)/;

function line(
  at: number,
  where: string,
  what: string,
  who: string,
  paint: Paint,
  style: Parameters<Paint>[0] | null,
): string {
  const time = new Date(at).toTimeString().slice(0, 8);
  const said = who === '' ? what : what.padEnd(WHAT_WIDTH);
  const shown = style === null ? said : paint(style, said);
  const about = `${paint('dim', time)}  ${paint('cyan', where.padEnd(WHERE_WIDTH))} ${shown}`;
  return who === '' ? about : `${about} ${paint('dim', who)}`;
}

function route({ from, to }: EventData<'change'>): string {
  if (from !== null && to !== null && from !== to) return `${from} → ${to}`;
  return to ?? from ?? '';
}

function whom(host: string | null, epoch: number | null): string {
  return [host, epoch !== null && `epoch ${epoch}`].filter(Boolean).join('  ');
}

function greeting({ cells, resumed, withheld }: EventData<'hello'>): string {
  const read = cells.filter(({ open }) => open).map(({ cellId }) => cellId);
  const not = cells
    .filter(({ open }) => !open)
    .map(({ cellId, reason }) => `${cellId} (${REASONS[reason ?? ''] ?? 'silent'})`);
  return [
    resumed ? 'Going on from the last event.' : 'From now on.',
    read.length > 0 && `Seats are read on ${read.join(', ')}.`,
    not.length > 0 && `Not on ${not.join(', ')}.`,
    ...withheld.map(({ cellId, ...why }) => `${cellId}: ${withheldWords(why)}.`),
  ]
    .filter(Boolean)
    .join(' ');
}

function unavailable({ reason, retainedForMs }: EventData<'cell_unavailable'>): string {
  return REASONS[reason] ?? `no answer for ${ago(retainedForMs)}`;
}

function gapWords(reason: string): string {
  return GAPS[reason as GapReason] ?? reason;
}

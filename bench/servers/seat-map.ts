import { systemClock } from '../../server/clock.ts';
import { FeedRead } from '../../server/director/feed-read.ts';
import { SeatMap } from '../../server/director/seat-map.ts';
import { benchHost, fullPageOf } from '../support/feed-pages.ts';
import { serve } from '../support/server-process.ts';

/** A director's map and nothing else, with so many hosts of one kind in it. */
const [kind = 'nothing', count = '0'] = process.argv.slice(2);

const CELLS = 30;
const hosts = Number(count);
const map = new SeatMap(systemClock, { retentionMs: 600_000 });
const cellIds = Array.from({ length: CELLS }, (_, n) => `cell-${n}`);
map.setCells(cellIds.map((cellId) => ({ cellId, incarnation: null, required: true })));

function read(n: number, of: 'seats' | 'leavers'): void {
  const cellId = cellIds[n] as string;
  const own = Array.from({ length: Math.ceil((hosts - n) / CELLS) }, (_, i) => n + i * CELLS);
  // as it comes off the wire: strings that share nothing
  const page = JSON.parse(JSON.stringify(fullPageOf(cellId, of === 'seats' ? own : [], of === 'leavers' ? own : [])));
  const refresh = map.begin(cellId);
  const step = new FeedRead(cellId, null).take(page);
  if (refresh === null || step.step !== 'complete') throw new Error('the page is not complete');
  map.apply(refresh, { ok: true, read: step.read });
}

const FILL: Record<string, () => void> = {
  nothing: () => undefined,
  seats: () => {
    for (let n = 0; n < CELLS; n++) read(n, 'seats');
  },
  'seats, retained from a failed read on': () => {
    for (let n = 0; n < CELLS; n++) read(n, 'seats');
    for (const cellId of cellIds) {
      const refresh = map.begin(cellId);
      if (refresh !== null) map.apply(refresh, { ok: false, failure: 'timeout' });
    }
  },
  'leavers, and their floors': () => {
    for (let n = 0; n < CELLS; n++) read(n, 'leavers');
  },
  'floors alone': () => {
    for (let n = 0; n < hosts; n++) map.raiseFloor(benchHost(n), 1 + (n % 50));
  },
};

FILL[kind]?.();
serve(0);

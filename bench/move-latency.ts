import { compareRates, latenciesAt } from './support/closed-loop.ts';
import { LIVE_CELLS, startFleetDatabase } from './support/fleet-database.ts';
import { move } from './support/moves.ts';
import { startServer } from './support/server-process.ts';
import { median, percentile } from './support/stats.ts';
import type { Bench, Table } from './table.ts';

const MOVES_PER_SECOND = 1_000;
/** Beyond this share of what the machine can do, the latency of an open loop is the length of its queue. */
const MOST_OF_CAPACITY = 0.6;
const CONNECTIONS = 16;
const TURNS = 5;
const SECONDS = 4;
const DIRECTORS = 5;

const mean = (values: readonly number[]) => values.reduce((sum, value) => sum + value, 0) / values.length;

export const bench: Bench = {
  about: `latency of ${MOVES_PER_SECOND} moves a second, with and without readers of the change log`,
  async run() {
    const fleet = await startFleetDatabase();
    const alone: number[][] = [];
    const beside: number[][] = [];
    let capacity = 0;
    let perSecond = MOVES_PER_SECOND;
    try {
      const clients = await fleet.connect(CONNECTIONS);
      const before = fleet.moveBack;
      const { most } = await compareRates(clients, { most: move(fleet) }, { turns: 3, seconds: 1, before });
      capacity = Math.round(most);
      perSecond = Math.round(Math.min(MOVES_PER_SECOND, capacity * MOST_OF_CAPACITY));
      const turn = async () => {
        await fleet.moveBack();
        return latenciesAt(clients, move(fleet), perSecond, SECONDS);
      };
      for (let n = 0; n < TURNS; n++) {
        alone.push(await turn());
        const readers = await startServer('change-readers', [fleet.url, String(LIVE_CELLS), String(DIRECTORS)]);
        beside.push(await turn());
        readers.stop();
      }
      await Promise.all(clients.map((client) => client.end()));
    } finally {
      await fleet.stop();
    }
    const summary = (turns: readonly number[][]) => [
      median(turns.map(mean)),
      median(turns.map((turn) => percentile(turn, 0.5))),
      median(turns.map((turn) => percentile(turn, 0.99))),
    ];
    const [without, withReaders] = [summary(alone), summary(beside)];
    const table: Table = {
      title: `Latency of a move at ${perSecond} moves a second`,
      columns: ['', 'mean ms', 'p50 ms', 'p99 ms'],
      rows: [
        ['without readers', ...without],
        [`with ${LIVE_CELLS + DIRECTORS} readers`, ...withReaders],
        ['ratio', ...withReaders.map((value, n) => value / without[n]!)],
      ],
      notes: [
        'Wanted: mean ≤ 1.1 ×, at 1 000 moves a second or 0.6 of what the machine can do, whichever is less.',
        `Without a pause between moves ${CONNECTIONS} connections did ${capacity} a second. Measured from when a move was due; each figure is the median of the turns.`,
        `${LIVE_CELLS} cells poll once a second for what concerns them, ${DIRECTORS} directors every 250 ms for everything.`,
      ],
    };
    return [table];
  },
};

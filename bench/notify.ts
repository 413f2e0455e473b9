import { compareRates, type Work } from './support/closed-loop.ts';
import { type FleetDatabase, startFleetDatabase } from './support/fleet-database.ts';
import { move, moveAndRing } from './support/moves.ts';
import { startServer } from './support/server-process.ts';
import type { Bench, Table } from './table.ts';

const WRITERS = [1, 8, 32];
const LISTENERS = 100;
const TURN = { turns: 5, seconds: 1.5 };

export const bench: Bench = {
  about: 'what a NOTIFY in the transaction of a move would cost, and what idle listeners cost (incidents 4, 5)',
  async run() {
    const fleet = await startFleetDatabase();
    const rows: (string | number)[][] = [];
    try {
      for (const writers of WRITERS) {
        const works = { silent: move(fleet), ringing: moveAndRing(fleet) };
        const alone = await measure(fleet, writers, works);
        const listeners = await startServer('idle-listeners', [fleet.url, String(LISTENERS)]);
        const heard = await measure(fleet, writers, works);
        listeners.stop();
        rows.push([writers, alone.silent, heard.silent, alone.ringing, heard.ringing]);
        rows.push([
          'of the first',
          1,
          ...[heard.silent, alone.ringing, heard.ringing].map((rate) => rate / alone.silent),
        ]);
      }
    } finally {
      await fleet.stop();
    }
    const table: Table = {
      title: 'Moves a second, with and without NOTIFY in their transaction',
      columns: [
        'writers',
        'as it is',
        `${LISTENERS} idle listeners`,
        'with NOTIFY',
        `with NOTIFY, ${LISTENERS} listeners`,
      ],
      rows,
      notes: [
        'Moves write no NOTIFY; only changes of a cell do. The last two columns are what they would be if they did.',
      ],
    };
    return [table];
  },
};

async function measure<K extends string>(
  fleet: FleetDatabase,
  writers: number,
  works: Readonly<Record<K, Work>>,
): Promise<Record<K, number>> {
  const clients = await fleet.connect(writers);
  const rates = await compareRates(clients, works, { ...TURN, before: fleet.moveBack });
  await Promise.all(clients.map((client) => client.end()));
  return rates;
}

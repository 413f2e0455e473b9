import { compareRates } from './support/closed-loop.ts';
import { startFleetDatabase } from './support/fleet-database.ts';
import { move, moveByRoundTrips, readRow, sticky, updateRow } from './support/moves.ts';
import type { Bench, Table } from './table.ts';

const CLIENTS = [1, 8, 32];
const TURN = { turns: 5, seconds: 1.5 };

export const bench: Bench = {
  about: 'assign, sticky and move, against bare functions of one row and against separate round trips',
  async run() {
    const fleet = await startFleetDatabase();
    const kept: (string | number)[][] = [];
    const moved: (string | number)[][] = [];
    try {
      for (const count of CLIENTS) {
        const clients = await fleet.connect(count);
        const reads = await compareRates(clients, { bare: readRow(fleet), sticky: sticky(fleet) }, TURN);
        kept.push([count, reads.bare, reads.sticky, reads.sticky / reads.bare]);
        const writes = await compareRates(
          clients,
          { bare: updateRow(fleet), move: move(fleet), trips: moveByRoundTrips(fleet) },
          { ...TURN, before: fleet.moveBack },
        );
        moved.push([
          count,
          writes.bare,
          writes.move,
          writes.trips,
          writes.move / writes.bare,
          writes.move / writes.trips,
        ]);
        await Promise.all(clients.map((client) => client.end()));
      }
    } finally {
      await fleet.stop();
    }
    const stickyTable: Table = {
      title: 'assign, sticky: a host that holds its lease',
      columns: ['clients', 'bare read /s', 'sticky /s', 'of bare'],
      rows: kept,
      notes: ['Wanted: ≥ 0.5 of a function that reads one row. 100 000 hosts, drawn at random.'],
    };
    const moveTable: Table = {
      title: 'assign, move: a host of a dead cell, 30 live cells to choose from',
      columns: ['clients', 'bare update /s', 'move /s', 'round trips /s', 'of bare', '× round trips'],
      rows: moved,
      notes: [
        'Wanted: ≥ 0.3 of a function that updates one row and commits, ≥ 2 × the same statements sent one by one. fsync is on.',
      ],
    };
    return [stickyTable, moveTable];
  },
};

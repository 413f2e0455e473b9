import { setTimeout as sleep } from 'node:timers/promises';
import { startServer, type Usage } from './support/server-process.ts';
import type { Bench } from './table.ts';

const HOSTS = 100_000;
const KINDS = ['seats', 'seats, retained from a failed read on', 'leavers, and their floors', 'floors alone'] as const;

export const bench: Bench = {
  about: 'memory of a director’s seat map: bytes a host, by what is known of it',
  async run() {
    const empty = await settled('nothing', 0);
    const rows: (string | number)[][] = [];
    for (const kind of KINDS) {
      const full = await settled(kind, HOSTS);
      const each = (of: (usage: Usage) => number) => Math.round((of(full) - of(empty)) / HOSTS);
      const heap = (full.heapBytes - empty.heapBytes) / 1_048_576;
      rows.push([kind, each(({ heapBytes }) => heapBytes), each(({ rssBytes }) => rssBytes), heap]);
    }
    return [
      {
        title: `Seat map, ${HOSTS.toLocaleString('en-US')} hosts on 30 cells`,
        columns: ['what is known of a host', 'heap bytes a host', 'resident bytes a host', 'heap MiB in all'],
        rows,
        notes: ['After a garbage collection, less a process with an empty map. Accounts have names of 36 characters.'],
      },
    ];
  },
};

async function settled(kind: string, hosts: number): Promise<Usage> {
  const server = await startServer('seat-map', [kind, String(hosts)]);
  try {
    for (let i = 0; i < 3; i++) {
      await server.usage(true);
      await sleep(300);
    }
    return await server.usage(true);
  } finally {
    server.stop();
  }
}

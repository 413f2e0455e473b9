import { setTimeout as sleep } from 'node:timers/promises';
import { openPair, type RawPair, SPLICE_KINDS, type SpliceKind, startSpliceServer } from './support/splice-servers.ts';
import type { Bench } from './table.ts';

const PAIRS = 4_000;
const WARM_PAIRS = 100;
const AT_ONCE = 50;

export const bench: Bench = {
  about: 'bytes that an idle splice (two sockets) takes, against a bare uWS splice and ws',
  async run() {
    const rows: (string | number)[][] = [];
    for (const kind of SPLICE_KINDS) rows.push([kind, await bytesPerPair(kind)]);
    return [
      {
        title: `Idle splice: bytes of resident memory each, over ${PAIRS} of them`,
        columns: ['splice', 'bytes'],
        rows,
        notes: ['Growth of the server process after a garbage collection; the kernel’s own buffers are not in it.'],
      },
    ];
  },
};

async function bytesPerPair(kind: SpliceKind): Promise<number> {
  const server = await startSpliceServer(kind);
  const pairs: RawPair[] = [];
  const open = async (count: number) => {
    for (let opened = 0; opened < count; opened += AT_ONCE) {
      pairs.push(...(await Promise.all(Array.from({ length: AT_ONCE }, () => openPair(server)))));
    }
  };
  try {
    await open(WARM_PAIRS);
    await server.usage(true);
    await sleep(500);
    const before = (await server.usage(true)).rssBytes;
    await open(PAIRS);
    await server.usage(true);
    await sleep(500);
    const after = (await server.usage(true)).rssBytes;
    return (after - before) / PAIRS;
  } finally {
    server.stop();
    for (const { client, host } of pairs) {
      client.on('error', () => {});
      host.on('error', () => {});
      client.destroy();
      host.destroy();
    }
  }
}

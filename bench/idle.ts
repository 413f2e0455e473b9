import type { Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { placeHost, type SeatedHost, seatHost } from './support/bench-host.ts';
import { openRaw } from './support/raw-socket.ts';
import { startRealRelay } from './support/real-relay.ts';
import type { ServerProcess, Usage } from './support/server-process.ts';
import { openPair, SPLICE_KINDS, startSpliceServer } from './support/splice-servers.ts';
import type { Bench, Table } from './table.ts';

const PAIRS = 4_000;
const HOSTS = 2_300;
/** Compiled code and the tables of the process are there before the first is counted. */
const WARM = 500;
const AT_ONCE = 20;
const HARD_CAP = 3_000;

const NOTE = 'Growth of the server process after a garbage collection; the kernel’s own buffers are not in it.';

export const bench: Bench = {
  about: 'bytes that an idle seated host and an idle splice take, against bare uWS and ws',
  run: async () => [await seatedHosts(), await splices()],
};

async function splices(): Promise<Table> {
  const rows: (string | number)[][] = [];
  for (const kind of SPLICE_KINDS) {
    const server = await startSpliceServer(kind);
    rows.push([kind, ...(await bytesEach(server, PAIRS, () => openPair(server)))]);
    server.stop();
  }
  return {
    title: `Idle splice (two sockets), over ${PAIRS}`,
    columns: ['splice', 'resident bytes', 'of them JavaScript heap'],
    rows,
    notes: [NOTE],
  };
}

async function seatedHosts(): Promise<Table> {
  const relay = await startRealRelay(HARD_CAP);
  const seated: SeatedHost[] = [];
  const seat = async () => {
    seated.push(await seatHost(await placeHost(relay)));
  };
  const rows: (string | number)[][] = [['relay, whole process', ...(await bytesEach(relay, HOSTS, seat))]];
  for (const kind of ['bare uWS, batched', 'ws, plain'] as const) {
    const server = await startSpliceServer(kind);
    const sockets: Socket[] = [];
    const open = async () => {
      sockets.push(await openRaw(server.port, `/host/idle-${sockets.length}-${Math.random()}`));
    };
    rows.push([`${kind}: a socket`, ...(await bytesEach(server, HOSTS, open))]);
    server.stop();
  }
  await relay.stop();
  return {
    title: `Idle seated host, over ${HOSTS}`,
    columns: ['host', 'resident bytes', 'of them JavaScript heap'],
    rows,
    notes: [NOTE, 'Wanted: ≤ 5 KiB on top of the process.'],
  };
}

/** @param open makes one; several run at once. */
async function bytesEach(
  server: ServerProcess,
  count: number,
  open: () => Promise<unknown>,
): Promise<[number, number]> {
  const openMany = async (total: number) => {
    let left = total;
    const lane = async () => {
      while (left-- > 0) await open();
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lane));
  };
  await openMany(WARM);
  const before = await settled(server);
  await openMany(count);
  const after = await settled(server);
  return [(after.rssBytes - before.rssBytes) / count, (after.heapBytes - before.heapBytes) / count];
}

async function settled(server: ServerProcess): Promise<Usage> {
  for (let i = 0; i < 3; i++) {
    await server.usage(true);
    await sleep(300);
  }
  return server.usage(true);
}

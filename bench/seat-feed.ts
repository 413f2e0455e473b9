import { rmSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { ensureDatabase, startPostgres, temporaryDataDir } from '../server/dev/postgres.ts';
import { migrate } from '../server/migrate.ts';
import { type FeedCells, startFeedCells } from './support/feed-cells.ts';
import { type ServerProcess, startServer, type Usage } from './support/server-process.ts';
import { median } from './support/stats.ts';
import type { Bench, Table } from './table.ts';

const CELLS = 30;
const SEATS_A_CELL = 3_000;
const CHANGES_PER_SECOND = 30;
const ROUNDS = 7;
const ROUND_MS = 5_000;
const SIGNING_KEY = 'a signing key for a bench, of thirty-two bytes';
/** No cell is called so. */
const NONE = 'none';

export const bench: Bench = {
  about: 'what reading the seats of a whole fleet costs a director, against one that reads none',
  async run() {
    const cells = await startFeedCells(CELLS, SEATS_A_CELL, CHANGES_PER_SECOND);
    const dataDir = temporaryDataDir();
    const server = await startPostgres({ dataDir, durable: true });
    try {
      const url = await ensureDatabase(server, 'bench');
      await migrate(url);
      await register(url, cells);
      return [await measure(url, cells)];
    } finally {
      cells.stop();
      await server.stop();
      rmSync(dataDir, { recursive: true, force: true });
    }
  },
};

async function measure(url: string, cells: FeedCells): Promise<Table> {
  const idle = await startServer('director', [url, SIGNING_KEY, NONE]);
  const startedAt = performance.now();
  const reading = await startServer('director', [url, SIGNING_KEY, 'all']);
  while (cells.served() < CELLS) await sleep(10);
  const firstReadMs = performance.now() - startedAt;
  await sleep(ROUND_MS);
  const cpu: Record<'idle' | 'reading', number[]> = { idle: [], reading: [] };
  const servedBefore = cells.served();
  for (let round = 0; round < ROUNDS; round++) {
    const [ofIdle, ofReading] = await Promise.all([cpuMs(idle), cpuMs(reading)]);
    cpu.idle.push(ofIdle);
    cpu.reading.push(ofReading);
  }
  const pages = (cells.served() - servedBefore) / ((ROUNDS * ROUND_MS) / 1_000);
  const [memoryIdle, memoryReading] = await Promise.all([settled(idle), settled(reading)]);
  await Promise.all([idle.stop(), reading.stop()]);
  const row = (name: string, ms: readonly number[], { rssBytes, heapBytes }: Usage) => {
    return [name, median(ms), rssBytes / 1_048_576, heapBytes / 1_048_576];
  };
  return {
    title: `Seat feeds: ${CELLS} cells of ${SEATS_A_CELL} seats, ${CHANGES_PER_SECOND} changes a second`,
    columns: ['director', 'CPU ms per second', 'resident MiB', 'heap MiB'],
    rows: [row('reads no feed', cpu.idle, memoryIdle), row('reads all of them', cpu.reading, memoryReading)],
    notes: [
      `${pages.toFixed(1)} pages a second; every cell was asked within ${Math.round(firstReadMs)} ms of the process’s start.`,
      `Medians of ${ROUNDS} rounds of ${ROUND_MS / 1_000} s, both directors at the same time.`,
    ],
  };
}

/** Of one second, on average over a round. */
async function cpuMs(server: ServerProcess): Promise<number> {
  const before = await server.usage();
  const startedAt = performance.now();
  await sleep(ROUND_MS);
  const after = await server.usage();
  return (after.cpuMicros - before.cpuMicros) / (performance.now() - startedAt);
}

async function settled(server: ServerProcess): Promise<Usage> {
  await server.usage(true);
  await sleep(300);
  return server.usage(true);
}

async function register(url: string, { cells }: FeedCells): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (const { id, url: origin } of cells) {
      await client.query('select relay_v1.register_cell($1, $2, $3, $4)', [id, origin, 'us-central1', 100_000]);
    }
  } finally {
    await client.end();
  }
}

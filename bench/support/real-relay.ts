import { fork } from 'node:child_process';
import { once } from 'node:events';
import { rm } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { temporaryDataDir } from '../../server/dev/postgres.ts';
import { readSamples } from './samples.ts';
import type { ServerProcess } from './server-process.ts';

const SELF_HOSTED_KEY = 'bench-bench-bench-bench-bench-bench';
/** No host finds an error in a cell that is not heard yet. */
const HEARD_TRIES = 200;

export interface RealRelay extends ServerProcess {
  origin: string;
  selfHostedKey: string;
  stop(): Promise<void>;
}

/** Both roles in one process over a Postgres of its own, as a self-hoster runs it, with room for `hardCap` connections. */
export async function startRealRelay(hardCap: number): Promise<RealRelay> {
  const extension = path.extname(import.meta.filename);
  const dataDir = temporaryDataDir();
  const child = fork(new URL(`../../server/cli${extension}`, import.meta.url), ['combined'], {
    execArgv: [
      '--expose-gc',
      // Resident memory says little while garbage is in it.
      '--import',
      `data:text/javascript,process.on('SIGUSR2', () => globalThis.gc())`,
      ...(extension === '.ts' ? ['--import', 'tsx'] : []),
    ],
    env: {
      ...process.env,
      DATABASE_URL: '',
      PORT: '0',
      ORCA_RELAY_HOST: '127.0.0.1',
      ORCA_RELAY_DATA_DIR: dataDir,
      ORCA_RELAY_SELF_HOSTED_KEY: SELF_HOSTED_KEY,
      ORCA_RELAY_CELL_CAPACITY: String(hardCap),
      ORCA_RELAY_CELL_CONNECTION_HARD_CAP: String(hardCap),
      ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND: '100',
      ORCA_RELAY_LOG_LEVEL: 'error',
    },
    stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
  });
  const ended = once(child, 'exit');
  const failed = ended.then(([code]) => {
    throw new Error(`the relay ended with ${code}`);
  });
  failed.catch(() => {});
  const [{ listening }] = (await Promise.race([once(child, 'message'), failed])) as [
    { listening: { origin: string; port: number } },
  ];
  const { origin, port } = listening;
  const metrics = () => readSamples(origin);
  for (let i = 0; i < HEARD_TRIES; i++) {
    if ((await metrics()).get('orca_relay_heartbeats_total{answer="ok"}')) break;
    await sleep(100);
  }
  return {
    origin,
    port,
    selfHostedKey: SELF_HOSTED_KEY,
    async usage(collect = false) {
      if (collect) child.kill('SIGUSR2');
      const samples = await metrics();
      return {
        cpuMicros: (samples.get('process_cpu_seconds_total') ?? Number.NaN) * 1e6,
        rssBytes: samples.get('process_resident_memory_bytes') ?? Number.NaN,
        heapBytes: samples.get('nodejs_heap_size_used_bytes') ?? Number.NaN,
        queuedBytes: samples.get('orca_relay_splice_queued_bytes') ?? Number.NaN,
      };
    },
    async stop() {
      child.kill('SIGTERM');
      await ended;
      await rm(dataDir, { recursive: true, force: true });
    },
  };
}

import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { extname } from 'node:path';

/** What a measured server tells of itself. */
export interface Usage {
  /** User and system, microseconds since its start. */
  cpuMicros: number;
  rssBytes: number;
  /** Of JavaScript objects, which resident memory follows with slack. */
  heapBytes: number;
  /** Bytes that it holds for slow readers; 0 where it does not count them. */
  queuedBytes: number;
}

export interface ServerProcess {
  port: number;
  /** After a garbage collection if asked for. */
  usage(collect?: boolean): Promise<Usage>;
  stop(): void | Promise<void>;
}

const EXTENSION = extname(import.meta.filename);

/** Runs `bench/servers/<name>` in a process of its own. */
export async function startServer(name: string, args: string[] = []): Promise<ServerProcess> {
  const child = fork(new URL(`../servers/${name}${EXTENSION}`, import.meta.url), args, {
    execArgv: ['--expose-gc', ...(EXTENSION === '.ts' ? ['--import', 'tsx'] : [])],
  });
  const [{ port }] = (await Promise.race([once(child, 'message'), died(child, name)])) as [{ port: number }];
  return {
    port,
    async usage(collect = false) {
      child.send({ collect });
      const [usage] = (await once(child, 'message')) as [Usage];
      return usage;
    },
    stop: () => void child.kill(),
  };
}

async function died(child: ChildProcess, name: string): Promise<never> {
  const [code] = await once(child, 'exit');
  throw new Error(`server ${name} ended with ${code}`);
}

/** The server's half: says where it listens, and answers for its usage. */
export function serve(port: number, queuedBytes: () => number = () => 0): void {
  process.on('message', ({ collect }: { collect: boolean }) => {
    if (collect) globalThis.gc?.();
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const usage: Usage = { cpuMicros: user + system, rssBytes: rss, heapBytes: heapUsed, queuedBytes: queuedBytes() };
    process.send?.(usage);
  });
  // The parent has gone.
  process.on('disconnect', () => process.exit(0));
  process.send?.({ port });
}

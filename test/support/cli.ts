import { spawn } from 'node:child_process';
import { createServer } from 'node:net';
import path from 'node:path';
import { packageRoot } from '../../server/package-root.ts';

export interface CliRun {
  pid: number;
  kill(signal: NodeJS.Signals): void;
  stdout(): string;
  stderr(): string;
  ended: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
}

/** Runs the command line from its sources, with nothing of this process's environment but what Node needs. */
export function cli(args: readonly string[], env: Record<string, string> = {}): CliRun {
  const child = spawn(process.execPath, ['--import', 'tsx', path.join(packageRoot, 'server/cli.ts'), ...args], {
    cwd: packageRoot,
    env: { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  child.stdout.on('data', (chunk) => {
    out += chunk;
  });
  child.stderr.on('data', (chunk) => {
    err += chunk;
  });
  return {
    pid: child.pid as number,
    kill: (signal) => child.kill(signal),
    stdout: () => out,
    stderr: () => err,
    ended: new Promise((resolve) => child.on('close', (code, signal) => resolve({ code, signal }))),
  };
}

/** A run that ends by itself. */
export async function cliEnd(args: readonly string[], env: Record<string, string> = {}) {
  const run = cli(args, env);
  const { code } = await run.ended;
  return { code, stdout: run.stdout(), stderr: run.stderr() };
}

/** The first of several free ports in a row, below the range that the kernel hands out for outgoing connections. */
export async function freePorts(count: number): Promise<number> {
  for (;;) {
    const first = 12_000 + Math.floor(Math.random() * 20_000);
    const free = await Promise.all(Array.from({ length: count }, (_, index) => isFree(first + index)));
    if (free.every(Boolean)) return first;
  }
}

function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}

import { spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';

export interface Postmaster {
  pid: number;
  port: number;
  ready: boolean;
}

/** What `postmaster.pid` says: line 1 the process, 4 the port, 8 the state. Null without the file or before it is complete. */
export function readPostmaster(dataFolder: string): Postmaster | null {
  let lines: string[];
  try {
    lines = readFileSync(pidFile(dataFolder), 'utf8').split('\n');
  } catch {
    // gone, or never there
    return null;
  }
  const pid = Number(lines[0]);
  if (!Number.isSafeInteger(pid) || pid <= 0) return null;
  return { pid, port: Number(lines[3] ?? 0), ready: lines[7]?.trim() === 'ready' };
}

export function pidFile(dataFolder: string): string {
  return path.join(dataFolder, 'postmaster.pid');
}

export function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return !isZombie(pid);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

/** Ended, but nobody has asked for its exit code: what becomes of orphans where process 1 is no init. Linux only. */
function isZombie(pid: number): boolean {
  try {
    return / Z /.test(readFileSync(`/proc/${pid}/stat`, 'utf8').replace(/^.*\)/s, ''));
  } catch {
    // no /proc here, or gone this moment
    return false;
  }
}

/** Whether a process is the server of this folder, and not a stranger that got its number after a restart of the machine. */
export function servesFolder(pid: number, dataFolder: string): boolean {
  if (!isAlive(pid)) return false;
  const words = commandLine(pid);
  return words.some((word) => word.includes('postgres')) && words.some((word) => word.includes(dataFolder));
}

export function commandLine(pid: number): string[] {
  const proc = `/proc/${pid}/cmdline`;
  if (existsSync(proc)) return readFileSync(proc, 'utf8').split('\0');
  const run = spawnSync('ps', ['-ww', '-o', 'args=', '-p', String(pid)], { encoding: 'utf8', timeout: 5_000 });
  return run.status === 0 ? run.stdout.trim().split(/\s+/) : [];
}

/**
 * A lock file of a dead server whose process number a stranger holds now would stop the next start. Postgres takes its
 * parent's number for stale, so that goes into the file; the rest stays, because it lets Postgres find backends that
 * outlived their postmaster.
 */
export function disownLockFile(dataFolder: string): void {
  const file = pidFile(dataFolder);
  const [, ...rest] = readFileSync(file, 'utf8').split('\n');
  writeFileSync(file, [process.pid, ...rest].join('\n'));
}

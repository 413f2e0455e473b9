import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { z } from 'zod';
import { Problem } from '../problem.ts';
import { writePrivate } from './local-secrets.ts';
import { commandLine, isAlive } from './postgres-orphan.ts';
import { unwritable } from './postgres-user.ts';

const state = z.object({
  pid: z.int(),
  director: z.string(),
  cells: z.array(z.object({ id: z.string(), url: z.string() })),
  selfHostedKey: z.string(),
  /** Logs in as a member of relay_operator. */
  operatorUrl: z.string(),
});

/** What a running `up` tells the other commands of the same user. */
export type UpState = z.infer<typeof state>;

const LOCK = 'up.pid';
const STATE = 'up.json';

export interface Claim {
  /** A former `up` of this folder was killed: its processes may still be ending. */
  afterCrash: boolean;
  publish(state: Omit<UpState, 'pid'>): void;
  release(): void;
}

/** Makes this process the only `up` of a data folder. Throws a {@link Problem} that names the other one. */
export function claimDataDir(dataDir: string): Claim {
  const lock = path.join(dataDir, LOCK);
  let afterCrash = false;
  while (!writeLock(lock)) {
    const holder = readPid(lock);
    if (holder !== null && isRelay(holder)) {
      throw new Problem(
        `another orca-relay (process ${holder}) runs on ${dataDir}: stop it, or set ORCA_RELAY_DATA_DIR to another folder`,
      );
    }
    afterCrash = true;
    discard(lock);
  }
  return {
    afterCrash,
    publish: (told) => writePrivate(path.join(dataDir, STATE), `${JSON.stringify({ pid: process.pid, ...told })}\n`),
    release: () => {
      rmSync(path.join(dataDir, STATE), { force: true });
      rmSync(lock, { force: true });
    },
  };
}

function writeLock(lock: string): boolean {
  try {
    mkdirSync(path.dirname(lock), { recursive: true });
    writeFileSync(lock, String(process.pid), { flag: 'wx', mode: 0o600 });
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw new Problem(unwritable(path.dirname(lock), error));
  }
}

/** By renaming, so that of two that find a stale lock only one removes it. */
function discard(lock: string): void {
  const aside = `${lock}.${process.pid}`;
  try {
    renameSync(lock, aside);
    rmSync(aside, { force: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw new Problem(unwritable(path.dirname(lock), error));
  }
}

function readPid(lock: string): number | null {
  try {
    const pid = Number(readFileSync(lock, 'utf8'));
    return Number.isSafeInteger(pid) && pid > 0 ? pid : null;
  } catch {
    // released between our look and our reading
    return null;
  }
}

/** A process number alone may belong to a stranger after a restart of the machine. */
function isRelay(pid: number): boolean {
  return pid !== process.pid && isAlive(pid) && commandLine(pid).some((word) => /orca-relay|cli\.[jt]s$/.test(word));
}

/** The `up` that runs on this data folder; null if none does. */
export function findUp(dataDir: string): UpState | null {
  try {
    const parsed = state.safeParse(JSON.parse(readFileSync(path.join(dataDir, STATE), 'utf8')));
    return parsed.success && isRelay(parsed.data.pid) ? parsed.data : null;
  } catch {
    // no file, or not yet whole: nothing runs
    return null;
  }
}

import { type ChildProcess, fork } from 'node:child_process';
import { createInterface } from 'node:readline';
import { Problem } from '../problem.ts';
import type { ListeningMessage } from '../serve.ts';

export interface ChildPlan {
  /** As people know it: `director`, `cell-1`. */
  name: string;
  /** Of the CLI. */
  args: string[];
  env: NodeJS.ProcessEnv;
  /** By default what this process was started with: the loader of the sources, if there is one. */
  node?: { script: string; options: string[] };
}

export interface SupervisedChild {
  name: string;
  pid(): number | undefined;
  /** Resolves when it listens for the first time; rejects with a {@link Problem} if it ends before. */
  listening: Promise<void>;
  /** Ends it for good: SIGTERM, and SIGKILL if that takes too long. */
  stop(): Promise<void>;
}

export interface ChildEvents {
  onLine(name: string, line: string): void;
  /** It ended by itself and will be started again. */
  onRestart(name: string, reason: string, delayMs: number): void;
}

const RESTART_MS = { first: 200, most: 5_000 };
/** After this long the next end is a new story, and is answered at once again. */
const STEADY_MS = 10_000;
const STOP_MS = 5_500;
const WORDS_KEPT = 20;
const OWN_WORDS = 'orca-relay: ';

/** Runs a command of this CLI as a child and starts it again when it ends. */
export function superviseChild(plan: ChildPlan, events: ChildEvents): SupervisedChild {
  let child: ChildProcess | null = null;
  let stopping = false;
  let delay = RESTART_MS.first;
  let timer: NodeJS.Timeout | undefined;
  const heard: string[] = [];
  let settle: { resolve: () => void; reject: (error: Error) => void } | null = null;
  const listening = new Promise<void>((resolve, reject) => {
    settle = { resolve, reject };
  });

  const start = () => {
    const started = performance.now();
    const own = forkCli(plan);
    child = own;
    for (const stream of [own.stdout, own.stderr]) {
      if (!stream) continue;
      createInterface({ input: stream }).on('line', (line) => {
        if (stream === own.stderr) heard.push(line);
        if (heard.length > WORDS_KEPT) heard.shift();
        events.onLine(plan.name, line);
      });
    }
    own.on('message', (message) => {
      if (!(message as Partial<ListeningMessage>).listening) return;
      settle?.resolve();
      settle = null;
    });
    own.on('error', (error) => heard.push(error.message));
    // 'close', not 'exit': by then all it said has been read
    own.on('close', (code, signal) => {
      child = null;
      if (stopping) return;
      if (settle) {
        settle.reject(new Problem(`${plan.name} does not start: ${whyItEnded(heard) ?? `exit code ${code}`}`));
        settle = null;
        return;
      }
      if (performance.now() - started > STEADY_MS) delay = RESTART_MS.first;
      events.onRestart(plan.name, signal ?? `exit code ${code}`, delay);
      timer = setTimeout(start, delay);
      delay = Math.min(delay * 2, RESTART_MS.most);
    });
  };
  start();
  return {
    name: plan.name,
    pid: () => child?.pid,
    listening,
    stop: async () => {
      stopping = true;
      clearTimeout(timer);
      await endChild(child);
    },
  };
}

/** The CLI says in one line what is wrong; what a crash prints begins with its error. */
function whyItEnded(heard: readonly string[]): string | undefined {
  const own = heard.findLast((line) => line.startsWith(OWN_WORDS));
  return own?.slice(OWN_WORDS.length) ?? heard.find((line) => line.trim() !== '');
}

export function forkCli({ args, env, node }: ChildPlan): ChildProcess {
  return fork(node?.script ?? (process.argv[1] as string), args, {
    env,
    execArgv: node?.options ?? process.execArgv,
    // its own process group: Ctrl-C reaches the parent alone, which then stops all in order
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
  });
}

export async function endChild(child: ChildProcess | null): Promise<void> {
  if (!child || child.exitCode !== null || child.signalCode !== null) return;
  const ended = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), STOP_MS);
  await ended;
  clearTimeout(timer);
}

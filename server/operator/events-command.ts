import type { Environment } from '../config.ts';
import { painter } from '../dev/child-log.ts';
import { type DirectorOptions, findDirector } from './director-session.ts';
import { concerns, eventLine } from './event-lines.ts';
import { readEvents } from './event-reader.ts';

export interface EventsCommandOptions extends DirectorOptions {
  cell?: string;
  json?: boolean;
}

const INTERRUPTED = 130;

/** Prints what happens in the fleet until it is interrupted. Throws a {@link Problem}. */
export async function runEvents(options: EventsCommandOptions, env: Environment): Promise<void> {
  const director = findDirector(options, env);
  const out = process.stdout;
  const paint = painter(out, process.env);
  const stop = new AbortController();
  const leave = () => {
    stop.abort();
    process.exitCode = INTERRUPTED;
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, leave);
  // a reader such as head that has seen enough
  out.on('error', () => process.exit(0));
  for await (const read of readEvents(director, stop.signal)) {
    if ('trouble' in read) {
      process.stderr.write(
        `orca-relay: ${read.trouble === null ? 'connected again' : `${read.trouble}; trying again`}\n`,
      );
    } else if (options.cell === undefined || concerns(read.told, options.cell)) {
      const { event, data } = read.told;
      out.write(`${options.json ? JSON.stringify({ event, ...data }) : eventLine(read.told, Date.now(), paint)}\n`);
    }
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import type { Environment } from '../config.ts';
import { relayTypes, toDatabaseError } from '../database.ts';
import { painter } from '../dev/child-log.ts';
import { Problem } from '../problem.ts';
import { databaseProblem } from '../schema-version.ts';
import { FLEET_SQL, type FleetRow, fleetTable } from './fleet-table.ts';
import { connectAsOperator, DatabaseAway, findDatabase } from './session.ts';

export interface FleetCommandOptions {
  json?: boolean;
  watch?: boolean;
}

const EVERY_MS = 1_000;
const INTERRUPTED = 130;
const SCREEN = {
  enter: '\u001b[?1049h\u001b[?25l',
  home: '\u001b[H',
  clearLine: '\u001b[K',
  clearRest: '\u001b[J',
  leave: '\u001b[?25h\u001b[?1049l',
};

/**
 * Prints the fleet once, or again every second. A terminal is redrawn in place; elsewhere each picture follows the one
 * before. Throws a {@link Problem}.
 */
export async function runFleet(options: FleetCommandOptions, env: Environment): Promise<void> {
  const out = process.stdout;
  const reader = new FleetReader(findDatabase(env));
  const paint = painter(out, process.env);
  const show = (rows: FleetRow[]) =>
    options.json ? rows.map((row) => JSON.stringify(row)).join('\n') : fleetTable(rows, paint);
  try {
    const first = await reader.read();
    if (!options.watch) {
      out.write(`${show(first)}\n`);
      return;
    }
  } finally {
    if (!options.watch) await reader.close();
  }
  await watch(reader, show, out.isTTY === true && !options.json);
}

async function watch(reader: FleetReader, show: (rows: FleetRow[]) => string, redraws: boolean): Promise<void> {
  const out = process.stdout;
  let picture = '';
  const leave = () => {
    // the last picture stays where the shell goes on
    if (redraws) out.write(`${SCREEN.leave}${picture}\n`);
    process.exit(INTERRUPTED);
  };
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.once(signal, leave);
  // a reader such as head that has seen enough
  out.on('error', () => process.exit(0));
  if (redraws) out.write(SCREEN.enter);
  for (let shown = false; ; ) {
    let trouble = '';
    try {
      picture = show(await reader.read());
      shown = false;
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      trouble = `${error.message}; trying again`;
    }
    if (redraws) {
      const lines = [picture, '', trouble || `${new Date().toLocaleTimeString()}   Ctrl-C ends it`].join('\n');
      out.write(
        `${SCREEN.home}${lines.replaceAll('\n', `${SCREEN.clearLine}\n`)}${SCREEN.clearLine}${SCREEN.clearRest}`,
      );
    } else if (trouble === '') {
      out.write(`${picture}\n`);
    } else if (!shown) {
      process.stderr.write(`orca-relay: ${trouble}\n`);
      shown = true;
    }
    await sleep(EVERY_MS);
  }
}

/** Keeps one connection, and dials anew when it is lost. */
export class FleetReader {
  readonly #url: string;
  #client: pg.Client | null = null;

  constructor(url: string) {
    this.#url = url;
  }

  /** @throws Problem */
  read(): Promise<FleetRow[]> {
    return this.rows<FleetRow>(FLEET_SQL);
  }

  /** @throws Problem, DatabaseAway if another attempt may succeed */
  async rows<R>(text: string, values: readonly unknown[] = []): Promise<R[]> {
    this.#client ??= await connectAsOperator(this.#url, 'fleet', relayTypes);
    try {
      return (await this.#client.query(text, [...values])).rows as R[];
    } catch (error) {
      await this.close();
      const failure = toDatabaseError(error);
      throw failure.retryable ? new DatabaseAway(databaseProblem(failure)) : new Problem(failure.message);
    }
  }

  async close(): Promise<void> {
    const client = this.#client;
    this.#client = null;
    await client?.end().catch(() => undefined);
  }
}

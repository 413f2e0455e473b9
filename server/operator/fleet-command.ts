import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { type CellViews, cellViews } from '../../contract/cell-views.ts';
import type { Environment } from '../config.ts';
import { relayTypes, toDatabaseError } from '../database.ts';
import { painter } from '../dev/child-log.ts';
import { Problem } from '../problem.ts';
import { databaseProblem } from '../schema-version.ts';
import { askDirector, type DirectorOptions, findDirector, reasonOf } from './director-session.ts';
import { type DirectorsView, FLEET_SQL, type FleetRow, fleetTable, pollsOf } from './fleet-table.ts';
import { connectAsOperator, DatabaseAway, findDatabase } from './session.ts';

export interface FleetCommandOptions extends DirectorOptions {
  json?: boolean;
  watch?: boolean;
}

const EVERY_MS = 1_000;
const VIEWS_TIMEOUT_MS = 2_000;
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
  const picture = async () => {
    const [rows, seen] = await Promise.all([reader.read(), readViews(options, env)]);
    if (!options.json) return fleetTable(rows, seen, paint);
    return rows.map((row) => JSON.stringify({ ...row, polls: pollsOf(row.cell_id, seen) })).join('\n');
  };
  try {
    const first = await picture();
    if (!options.watch) {
      out.write(`${first}\n`);
      return;
    }
  } finally {
    if (!options.watch) await reader.close();
  }
  await watch(picture, out.isTTY === true && !options.json);
}

/** The fleet is shown without them, and then says why: whoever looks may look because the directors are gone. */
async function readViews(options: DirectorOptions, env: Environment): Promise<DirectorsView> {
  try {
    const signal = AbortSignal.timeout(VIEWS_TIMEOUT_MS);
    const reply = await askDirector(findDirector(options, env), '/v1/admin/cells', { signal });
    const views: CellViews = cellViews.parse(await reply.json());
    return { views };
  } catch (error) {
    return { unasked: error instanceof Problem ? error.message : reasonOf(error) };
  }
}

async function watch(read: () => Promise<string>, redraws: boolean): Promise<void> {
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
      picture = await read();
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

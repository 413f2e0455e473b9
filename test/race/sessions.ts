import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { relayTypes } from '../../server/database.ts';
import type { ParamsOf, RelayFunction, RelayFunctions, ResultOf } from '../../server/sql-interface.ts';
import type { FreshDatabase, RelayRole } from '../support/database.ts';

/** One connection that can hold a transaction open, logged in as a role that may only call. */
export interface Session {
  readonly pid: number;
  call<F extends RowOrValue>(fn: F, params: ParamsOf<F>): Promise<ResultOf<F>>;
  run(statement: 'begin' | 'commit' | 'rollback'): Promise<void>;
  close(): Promise<void>;
}

type RowOrValue = { [F in RelayFunction]: RelayFunctions[F]['shape'] extends 'rows' ? never : F }[RelayFunction];

export async function openSession(database: FreshDatabase, role: RelayRole): Promise<Session> {
  const client = new pg.Client({
    connectionString: database.urlFor(role),
    types: relayTypes,
    statement_timeout: 10_000,
  });
  await client.connect();
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return {
    pid: rows[0]!.pid,
    async call(fn, params) {
      const given = Object.entries(params).filter(([, value]) => value !== undefined);
      const args = given.map(([name], index) => `${name} => $${index + 1}`).join(', ');
      const values = given.map(([, value]) => (isJson(value) ? JSON.stringify(value) : value));
      const result = await client.query(`select * from relay_v1.${fn}(${args})`, values);
      const row = result.rows[0] as Record<string, unknown>;
      return (result.fields.length === 1 ? row[result.fields[0]!.name] : row) as never;
    },
    async run(statement) {
      await client.query(statement);
    },
    close: () => client.end(),
  };
}

function isJson(value: unknown): boolean {
  return typeof value === 'object' && value !== null && !(value instanceof Date);
}

/** What one call of each session answered, and whether the second had to wait for the first one's transaction. */
export interface Interleaving<A, B> {
  first: A;
  second: B;
  waited: boolean;
}

/**
 * Runs `first` in a transaction that stays open until `second`, in another session, waits for one of its locks or is done;
 * then ends the first with `end`.
 */
export async function interleave<A, B>(
  database: FreshDatabase,
  sessions: readonly [Session, Session],
  first: (session: Session) => Promise<A>,
  second: (session: Session) => Promise<B>,
  end: 'commit' | 'rollback' = 'commit',
): Promise<Interleaving<A, B>> {
  const [one, two] = sessions;
  await one.run('begin');
  const firstAnswer = await first(one);
  let done = false;
  const pending = second(two).finally(() => {
    done = true;
  });
  pending.catch(() => undefined);
  let waited = false;
  while (!done && !waited) {
    const [row] = await database.query<{ blocked: boolean }>('select $2 = any(pg_blocking_pids($1)) as blocked', [
      two.pid,
      one.pid,
    ]);
    waited = row!.blocked;
    if (!waited && !done) await sleep(2);
  }
  await one.run(end);
  return { first: firstAnswer, second: await pending, waited };
}

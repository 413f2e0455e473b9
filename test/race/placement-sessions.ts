import { setTimeout as sleep } from 'node:timers/promises';
import pg from 'pg';
import { relayTypes } from '../../server/database.ts';
import type { AssignResult, RequestedBy } from '../../server/sql-interface.ts';
import type { FreshDatabase } from '../support/database.ts';

const INCARNATION = '00000000-0000-4000-8000-00000000000';
const WAIT_POLL_MS = 5;
const WAIT_TRIES = 400;

export interface CellSetup {
  cellId: string;
  units?: number;
  region?: string;
  admission?: string;
  enforced?: number;
}

export interface AskOptions {
  by?: RequestedBy;
  region?: string;
  floor?: number;
  seen?: { cell_id: string; epoch: number };
  /** What the director's polls judged dead, and when by the database's clock. */
  dead?: { cellId: string; at: number };
}

/** One connection, so that a transaction can be left open and another session be seen to wait for it. */
export class Session {
  readonly client: pg.Client;
  readonly pid: number;

  private constructor(client: pg.Client, pid: number) {
    this.client = client;
    this.pid = pid;
  }

  static async open(url: string): Promise<Session> {
    const client = new pg.Client({ connectionString: url, types: relayTypes, statement_timeout: 10_000 });
    client.on('error', () => undefined);
    await client.connect();
    const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
    return new Session(client, rows[0]!.pid);
  }

  async query<R = Record<string, unknown>>(text: string, values: unknown[] = []): Promise<R[]> {
    return (await this.client.query(text, values)).rows as R[];
  }

  async assign(host: string, options: AskOptions = {}): Promise<AssignResult> {
    const rows = await this.query<AssignResult>(
      `select * from relay_v1.assign(user_id => $1, relay_host_id => $2, requested_by => $3, preferred_region => $4,
         epoch_floor => $5, seen => $6, poll_evidence => $7)`,
      [
        `user-${host}`,
        host,
        options.by ?? 'host',
        options.region ?? null,
        options.floor ?? null,
        options.seen ?? null,
        options.dead ? { cell_id: options.dead.cellId, dead: true, evaluated_at: options.dead.at } : null,
      ],
    );
    return rows[0]!;
  }

  begin(): Promise<unknown> {
    return this.query('begin');
  }
  commit(): Promise<unknown> {
    return this.query('commit');
  }
  rollback(): Promise<unknown> {
    return this.query('rollback');
  }
  close(): Promise<void> {
    return this.client.end();
  }
}

/** Resolves when the session waits for a lock. */
export async function waitsForLock(db: FreshDatabase, session: Session): Promise<void> {
  for (let tries = 0; tries < WAIT_TRIES; tries++) {
    const rows = await db.query("select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock'", [
      session.pid,
    ]);
    if (rows.length > 0) return;
    await sleep(WAIT_POLL_MS);
  }
  throw new Error(`session ${session.pid} never waited`);
}

export async function addCell(
  db: FreshDatabase,
  { cellId, units, region, admission, enforced }: CellSetup,
): Promise<void> {
  await db.query('select relay_v1.register_cell($1, $2, $3, $4, admission => $5)', [
    cellId,
    `https://${cellId}.example`,
    region ?? 'here',
    units ?? 10_000,
    admission ?? 'general',
  ]);
  await beat(db, cellId, enforced);
}

/** A heartbeat of the n-th process of a cell. Without a new one the process of before goes on. */
export async function beat(db: FreshDatabase, cellId: string, enforced = 0, process = 1, mark = 1): Promise<void> {
  const rows = await db.query<{ answer: string }>(
    `select relay_v1.heartbeat(c.cell_id, c.url, c.region, $2::uuid, timestamptz '2029-01-01' + $3 * interval '1 s', true,
       jsonb_build_object('enforced_units', $4::int, 'inclusion_watermark', $5::bigint)) as answer
     from relay.cell c where c.cell_id = $1`,
    [cellId, INCARNATION + process, process, enforced, mark],
  );
  if (rows[0]?.answer !== 'ok') throw new Error(`heartbeat of ${cellId}: ${rows[0]?.answer}`);
}

export const incarnation = (process = 1): string => INCARNATION + process;

/** Puts a host on a cell as if it had been there for long. */
export async function seat(db: FreshDatabase, host: string, cellId: string, epoch: number): Promise<void> {
  await db.query(
    `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at)
     values ($1, $2, $3, $4, relay.now())`,
    [`user-${host}`, host, cellId, epoch],
  );
}

/** A cell of this name whose heartbeats stopped, while the others have been heard long enough to judge it by that. */
export async function letDie(db: FreshDatabase, dead: readonly string[], alive: readonly string[]): Promise<void> {
  for (let s = 0; s < 75; s += 15) {
    await db.advanceClock(15_000);
    for (const cellId of alive) await beat(db, cellId);
  }
  for (const cellId of dead) {
    const rows = await db.query(
      "select from relay.cell_runtime r where r.cell_id = $1 and r.heard_at <= relay.now() - interval '45 s'",
      [cellId],
    );
    if (rows.length === 0) throw new Error(`${cellId} still lives`);
  }
}

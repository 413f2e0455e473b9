import { randomUUID } from 'node:crypto';
import { ControlSession } from '../../../server/cell/control-session.ts';
import type { EndCause } from '../../../server/cell/control-states.ts';
import type { FreshDatabase } from '../../support/database.ts';
import type { HandClock } from '../../support/hand-clock.ts';
import type { TestCore } from './core.ts';
import { MemorySocket } from './memory-socket.ts';

/** Cells of one fleet, recorded as reserve cells. */
export async function addReserveCells(database: FreshDatabase, cellIds: readonly string[]): Promise<void> {
  for (const cellId of cellIds) {
    await database.query(`select relay_v1.register_cell($1, 'https://${cellId}.test.example', 'us-central1', 10000)`, [
      cellId,
    ]);
    await database.query(`select relay_v1.set_admit_mode($1, 'reserve')`, [cellId]);
  }
}

/** The database has heard of this process, and of cells for long enough to judge silences. */
export async function beHeard(database: FreshDatabase, cellId: string, incarnation: string): Promise<void> {
  await database.query('delete from relay.cell_runtime where cell_id = $1', [cellId]);
  const [row] = await database.query<{ answer: string }>(
    `select relay_v1.heartbeat(cell_id => $1, incarnation => $2, url => 'https://${cellId}.test.example',
       region => 'us-central1', started_at => relay.now(), ready => true,
       load => '{"enforced_units": 0, "inclusion_watermark": 0}') as answer`,
    [cellId, incarnation],
  );
  if (row?.answer !== 'ok') throw new Error(`the heartbeat of ${cellId}: ${row?.answer}`);
  await database.query(`update relay.setting set hearing_since = relay.now() - interval '2 min'`);
}

/** Another cell of the fleet says how it really admits. */
export async function saysMode(database: FreshDatabase, cellId: string, mode: 'db' | 'reserve'): Promise<void> {
  const incarnation = randomUUID();
  await beHeard(database, cellId, incarnation);
  const [row] = await database.query<{ answer: string }>(
    'select relay_v1.record_effective_mode($1, $2, $3) as answer',
    [cellId, incarnation, mode],
  );
  if (row?.answer !== 'ok') throw new Error(`the mode of ${cellId}: ${row?.answer}`);
}

/** Lets time pass a second at a time, and each tick finish what it asked of the database. */
export async function pass(core: TestCore, clock: HandClock, seconds: number, each = () => {}): Promise<void> {
  for (let left = seconds; left > 0; left -= 1) {
    each();
    for (const session of core.seats.sessions()) session.pong(0);
    clock.advance(1_000);
    await quiet(core);
  }
}

/** Nothing that the modes asked of the database is under way. */
export async function quiet(core: TestCore): Promise<void> {
  const { row, reregistration } = core.modes;
  do await new Promise((resolve) => setImmediate(resolve));
  while (row.writing || reregistration.calls > 0);
}

export interface SeatedHost {
  session: ControlSession;
  socket: MemorySocket;
  ends: EndCause[];
}

let hosts = 0;

/** A host with a row that names a cell and an epoch (null: none), seated here from memory at an epoch: without a lease. */
export async function seatFromMemory(
  core: TestCore,
  database: FreshDatabase,
  row: { cellId: string; epoch: number } | null = { cellId: core.identity.cellId, epoch: 1 },
  epoch = 1,
): Promise<SeatedHost> {
  hosts += 1;
  const host = { userId: `user-${hosts}`, relayHostId: `host${String(hosts).padStart(12, '0')}` };
  if (row !== null) {
    await database.query(
      `insert into relay.assignment (user_id, relay_host_id, cell_id, epoch, last_activity_at) values ($1, $2, $3, $4, relay.now())`,
      [host.userId, host.relayHostId, row.cellId, row.epoch],
    );
  }
  const socket = new MemorySocket();
  const ends: EndCause[] = [];
  const effects = {
    message: () => {},
    tick: () => {},
    closed: () => {},
    stepped: () => {},
    ended: (session: ControlSession, { cause }: { cause: EndCause }) => {
      ends.push(cause);
      core.seats.unseat(session);
      core.leases.forget(session);
    },
  };
  const identity = { ...host, profileId: 'p', organizationId: null, expiresAt: core.clock.wallNow() + 86_400_000 };
  const start = { identity, socket: socket.peer, capabilities: new Set<never>(), watermark: 1 };
  const session = new ControlSession(core, effects, start);
  session.activate({ epoch, generation: core.seats.nextGeneration(host), appVersion: '1' });
  core.seats.seat(session);
  return { session, socket, ends };
}

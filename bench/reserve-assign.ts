import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { asOperator } from '../server/dev/register-cell.ts';
import { switchMode } from '../server/operator/mode-steps.ts';
import { signHostToken } from '../server/tokens.ts';
import { placeHost, type SeatedHost, seatHost } from './support/bench-host.ts';
import { type FleetProcesses, startFleetProcesses } from './support/fleet-processes.ts';
import { readSamples, sumOf } from './support/samples.ts';
import { median } from './support/stats.ts';
import type { Bench, Cell } from './table.ts';

const CELLS = 4;
const HOSTS = 1_000;
const TURNS = 5;
const AT_ONCE = 32;
/** Per cell and second; a director sends a fifth of it. */
const INTAKE = 1_000;
/** A host is granted nothing more often than the least that its director may be told. */
const HOST_INTERVAL_MS = 1_000;

interface Ask {
  relayHostId: string;
  token: string;
}

interface Rate {
  perSecond: number;
  granted: number;
  /** Calls of the database that a director made for each that it granted. */
  calls: number;
}

export const bench: Bench = {
  about: 'asks of /v1/assign a second and calls of the database for each: cells in db mode, then in reserve mode',
  async run() {
    const fleet = await startFleetProcesses(CELLS, {
      ORCA_RELAY_LOG_LEVEL: 'error',
      ORCA_RELAY_PUBLIC_ASSIGNMENT_RETRY_AFTER_SECONDS: '1',
      ORCA_RELAY_PUBLIC_STICKY_RETRY_AFTER_SECONDS: '1',
    });
    const rows: Cell[][] = [];
    try {
      const seated = await seatHosts(fleet);
      for (const mode of ['db', 'reserve'] as const) {
        if (mode === 'reserve') await toReserve(fleet);
        rows.push([mode, 'again', ...cellsOf(await measure(fleet, async () => seated))]);
        rows.push([mode, 'new', ...cellsOf(await measure(fleet, () => newHosts(fleet, HOSTS)))]);
      }
    } finally {
      await fleet.stop();
    }
    return [
      {
        title: 'assign by the mode of the cells',
        columns: ['mode', 'hosts', 'granted /s', 'granted %', 'calls of the database each'],
        rows,
        notes: [
          `One director and ${CELLS} cells, each a process; ${HOSTS} hosts a turn, ${AT_ONCE} at once, the median of ${TURNS} turns.`,
          '“Again”: hosts that are seated. “New”: hosts that nobody has seen. In reserve mode their rows are read, and written by the ledger once they sit.',
        ],
      },
    ];
  },
};

function cellsOf({ perSecond, granted, calls }: Rate): Cell[] {
  return [perSecond, granted * 100, calls];
}

async function seatHosts(fleet: FleetProcesses): Promise<(Ask & SeatedHost)[]> {
  const one = async () => {
    const host = await seatHost(await placeHost({ origin: fleet.director, selfHostedKey: fleet.selfHostedKey }));
    return { ...host, relayHostId: host.placed.names.relayHostId, token: host.placed.relayToken };
  };
  return atOnce(Array.from({ length: HOSTS }, () => one));
}

async function newHosts({ director, signingKey }: FleetProcesses, count: number): Promise<Ask[]> {
  return Promise.all(
    Array.from({ length: count }, async () => {
      const relayHostId = randomBytes(12).toString('base64url');
      const { relayToken } = await signHostToken(signingKey, { profileId: director, relayHostId });
      return { relayHostId, token: relayToken };
    }),
  );
}

async function toReserve(fleet: FleetProcesses): Promise<void> {
  const { cells, database, director } = fleet;
  await asOperator(database.urls.operator, async (operator) => {
    const ask = <R>(text: string, values?: readonly unknown[]) => operator.query<R>(text, values);
    await Promise.all(cells.map((id) => switchMode(ask, id, 'reserve', { onStep: () => undefined })));
    await ask(
      `select relay_v1.set_cell_flags(cell_id, flags || jsonb_build_object('intakePerSec', $1::int), flags_generation)
       from relay_v1.modes`,
      [INTAKE],
    );
  });
  for (;;) {
    const [host] = await newHosts(fleet, 1);
    await ask(director, host as Ask);
    if (sumOf(await readSamples(director), 'orca_relay_booking_total', 'outcome', 'ok') > 0) return;
    await sleep(HOST_INTERVAL_MS);
  }
}

async function measure({ director }: FleetProcesses, hosts: () => Promise<Ask[]>): Promise<Rate> {
  const rates: number[] = [];
  const granted: number[] = [];
  const calls: number[] = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const asks = await hosts();
    await sleep(HOST_INTERVAL_MS);
    const before = await placementCalls(director);
    const started = performance.now();
    const answers = await atOnce(asks.map((host) => () => ask(director, host)));
    const seconds = (performance.now() - started) / 1_000;
    const yes = answers.filter(Boolean).length;
    rates.push(yes / seconds);
    granted.push(yes / asks.length);
    calls.push(((await placementCalls(director)) - before) / Math.max(1, yes));
  }
  return { perSecond: median(rates), granted: median(granted), calls: median(calls) };
}

async function ask(director: string, { relayHostId, token }: Ask): Promise<boolean> {
  const reply = await fetch(`${director}/v1/assign`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json' },
    body: JSON.stringify({ v: 1, relayHostId, reconnect: true }),
  });
  await reply.arrayBuffer();
  return reply.status === 200;
}

/** Those that asks of hosts cause, now or by the ledger; not the steady ones of the director. */
async function placementCalls(director: string): Promise<number> {
  const samples = await readSamples(director);
  const of = (name: string) => sumOf(samples, 'orca_relay_database_calls_total', 'function', name);
  return of('assign') + of('host_row') + of('epoch_base') + of('record_seats');
}

async function atOnce<T>(works: readonly (() => Promise<T>)[]): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    for (let n = next++; n < works.length; n = next++) results[n] = await (works[n] as () => Promise<T>)();
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}

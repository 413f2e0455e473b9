import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type Node, type Seated } from '../acceptance/support/fleet.ts';
import { newId, newIdentity } from '../acceptance/support/identity.ts';
import { type OwnPostgres, startOwnPostgres } from '../acceptance/support/own-postgres.ts';
import {
  askAssign,
  askResolve,
  assign,
  connectInvite,
  connectPair,
  installDevice,
  type Pair,
} from '../acceptance/support/parts.ts';
import { UpgradeRefused } from '../acceptance/support/peer.ts';
import { RawHost } from '../acceptance/support/raw-host.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { until } from '../acceptance/support/wait.ts';

let postgres: OwnPostgres;
let fleet: Fleet;
beforeAll(async () => {
  postgres = await startOwnPostgres();
  fleet = await Fleet.start({ database: postgres, cells: [{}, {}], processes: true });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await postgres?.drop();
  }
});

const RECOVERY_MS = 10_000;

const nodes = (): Node[] => [fleet.director, ...fleet.cells];

async function healthy(): Promise<void> {
  for (const { origin } of nodes()) {
    expect((await fetch(`${origin}/health`, { signal: AbortSignal.timeout(2_000) })).status).toBe(200);
    expect((await fetch(`${origin}/metrics`, { signal: AbortSignal.timeout(2_000) })).status).toBe(200);
  }
}

async function stillSpliced({ phone, data }: Pair): Promise<void> {
  const word = newId('word');
  phone.peer.send(word);
  expect((await data.next()).data.toString()).toBe(word);
  data.send(word);
  expect((await phone.peer.next()).data.toString()).toBe(word);
}

/** What a host that dials now gets: its code, or null when it is seated. */
async function helloOutcome({ identity, grant }: Pick<Seated, 'identity' | 'grant'>): Promise<number | null> {
  const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token: await fleet.token(identity) };
  try {
    const host = await RawHost.upgrade(identity, options);
    host.hello(options);
    await Promise.race([host.prove(options).catch(() => null), host.peer.closed]);
    const code = host.peer.closeSeen?.code ?? null;
    host.drop();
    return code;
  } catch (error) {
    if (error instanceof UpgradeRefused) return error.status;
    throw error;
  }
}

/** A new host on a given cell: until 45 s have passed the database cannot know that another one is dead. */
async function seatOn(cell: Node): Promise<RawHost> {
  for (;;) {
    const identity = newIdentity();
    const token = await fleet.token(identity);
    const grant = await assign(fleet.director.origin, token, identity);
    if (grant.cellUrl === cell.origin) return fleet.dial(identity, grant, { token });
  }
}

async function moves(): Promise<unknown[]> {
  return postgres.query(`select * from relay.change where kind = 'moved'`);
}

describe('Postgres stopped (incidents 1, 3)', () => {
  test('hosts and splices go on, new work is refused with a retry, all is normal within 10 s of its return', async () => {
    const seated = await Promise.all(Array.from({ length: 8 }, () => fleet.seat()));
    const [first, second] = seated as [Seated, Seated];
    const device = await installDevice(first.host);
    const pair = await connectInvite(second.host);
    const newcomer = newIdentity();
    const token = await fleet.token(newcomer);
    const late = await fleet.seat();
    late.host.peer.hangUp(1000, 'signed-out');

    await postgres.down();
    await healthy();
    await stillSpliced(pair);
    const refused = await askAssign(fleet.director.origin, token, newcomer);
    expect(refused).toMatchObject({ status: 503, body: { error: 'assignments_temporarily_unavailable' } });
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0);
    const resolve = await askResolve(fleet.director.origin, first.identity.relayHostId, device.resumeToken);
    expect(resolve.status).toBe(503);
    expect(Number(resolve.headers.get('retry-after'))).toBeGreaterThan(0);
    expect([4429, 503]).toContain(await helloOutcome(late));
    const phone = await RawPhone.knock(first.grant.cellUrl, first.identity.relayHostId, device.resumeToken);
    expect((await phone.refused(12_000)).code).toBe(4429);
    await healthy();
    await stillSpliced(pair);

    await postgres.up();
    const back = performance.now();
    await until(
      'a new host granted',
      () => askAssign(fleet.director.origin, token, newcomer),
      ({ status }) => status === 200,
      RECOVERY_MS,
    );
    await until(
      'an old host seated',
      () => helloOutcome(late),
      (code) => code === null,
      RECOVERY_MS,
    );
    const resumed = await connectPair(first.host, device.resumeToken);
    await stillSpliced(resumed);
    await stillSpliced(pair);
    for (const { origin } of nodes()) {
      await until(
        `${origin} ready`,
        async () => (await fetch(`${origin}/ready`)).status,
        (status) => status === 200,
        RECOVERY_MS,
      );
    }
    expect(performance.now() - back).toBeLessThan(RECOVERY_MS);
    expect(seated.every(({ host }) => host.peer.isOpen)).toBe(true);
    expect(await moves()).toEqual([]);
    for (const { host } of seated) host.drop();
  });

  test('a restart under load moves nobody and closes no seated host', async () => {
    const seated = await Promise.all(Array.from({ length: 12 }, () => fleet.seat()));
    const { host } = seated[0] as Seated;
    const device = await installDevice(host);
    let going = true;
    const outcomes: number[] = [];
    const load = seated.slice(1).map(async ({ identity }) => {
      const token = await fleet.token(identity);
      while (going) {
        const { status } = await askAssign(fleet.director.origin, token, identity, { reconnect: true });
        outcomes.push(status);
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    });
    await postgres.crash();
    await postgres.up();
    await until(
      'granted again',
      () => outcomes.at(-1),
      (status) => status === 200,
      RECOVERY_MS,
    );
    going = false;
    await Promise.all(load);

    expect(outcomes.filter((status) => status !== 200 && status !== 503)).toEqual([]);
    expect(seated.filter((one) => !one.host.peer.isOpen)).toEqual([]);
    await stillSpliced(await connectPair(host, device.resumeToken));
    expect(await moves()).toEqual([]);
    const rows = await postgres.query('select 1 from relay.assignment where epoch <> 1');
    expect(rows).toEqual([]);
  });

  test('every backend killed at once ends no process (incident 35)', async () => {
    const { host } = await fleet.seat();
    const pair = await connectInvite(host);
    await postgres.query(`select pg_terminate_backend(pid) from pg_stat_activity where usename like 'relay\\_%'`);
    await healthy();
    await stillSpliced(pair);
    const { host: next } = await fleet.seat();
    await stillSpliced(await connectInvite(next));
  });
});

describe('a process killed', () => {
  test('kill -9 of a cell: the other goes on, and a restart needs no manual step', async () => {
    const everyone = await Promise.all(Array.from({ length: 8 }, () => fleet.seat()));
    const [victim, survivor] = fleet.cells as [Node, Node];
    const on = (node: Node) => everyone.filter(({ grant }) => grant.cellUrl === node.origin);
    const pair = await connectInvite((on(survivor)[0] as Seated).host);
    victim.signal('SIGKILL');
    expect(await victim.exited()).toMatchObject({ signal: 'SIGKILL' });
    await stillSpliced(pair);
    await Promise.all(on(victim).map(({ host }) => host.peer.close()));
    expect((await seatOn(survivor)).peer.isOpen).toBe(true);

    await victim.start();
    const lost = on(victim)[0] as Seated;
    await until(
      'seated again',
      () => helloOutcome(lost),
      (code) => code === null,
    );
    expect(on(survivor).every(({ host }) => host.peer.isOpen)).toBe(true);
  });

  test('kill -9 of the director: hosts and phones go on, and a restart serves at once', async () => {
    const { identity, host } = await fleet.seat();
    const device = await installDevice(host);
    fleet.director.signal('SIGKILL');
    await fleet.director.exited();
    await stillSpliced(await connectPair(host, device.resumeToken));
    await fleet.director.start();
    const grant = await askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true });
    expect(grant).toMatchObject({ status: 200, body: { cellUrl: host.origin, assignmentEpoch: 1 } });
  });
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type Seated } from './support/fleet.ts';
import { newId } from './support/identity.ts';
import { askResolve, assign, connectInvite, connectPair, installDevice, type Pair } from './support/parts.ts';
import type { RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { scrape, total } from './support/scrape.ts';
import { until } from './support/wait.ts';

const GRACE_MS = 300_000;
const PACE_MS = 20_000;

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}, { region: 'europe-west1' }], tokenLifeSeconds: 3_600 });
});
afterAll(() => fleet?.stop());

async function operate(text: string, values: unknown[] = []): Promise<Record<string, unknown>> {
  await fleet.database.advanceClock(1);
  return (await fleet.database.query(text, values))[0] ?? {};
}

const setAdmission = (cellId: string, admission: string) =>
  operate('select relay_v1.set_admission($1, $2) as answer', [cellId, admission]);

async function row({ identity }: Pick<Seated, 'identity'>): Promise<Record<string, unknown> | undefined> {
  const text = 'select cell_id, epoch::int from relay.assignment where user_id = $1 and relay_host_id = $2';
  return (await fleet.database.query(text, [identity.userId, identity.relayHostId]))[0];
}

/** The migrations of hosts, open or not: completed, aborted or neither. */
async function migrations(hosts: Pick<Seated, 'identity'>[]): Promise<Record<string, unknown>[]> {
  return fleet.database.query(
    `select source_cell, target_cell, pinned_at is not null as pinned, registered_at is not null as registered,
       completed_at is not null as completed, aborted_at is not null as aborted
     from relay.migration where relay_host_id = any($1)`,
    [hosts.map(({ identity }) => identity.relayHostId)],
  );
}

/** What a desktop does when it reads `drain`: asks the director, and opens the new control before it lets go of the old. */
async function redial({ identity, host }: Seated): Promise<Seated> {
  await host.expect('drain');
  const grant = await assign(fleet.director.origin, await fleet.token(identity), identity);
  return { identity, grant, host: await fleet.dial(identity, grant) };
}

/** A frame each way. */
async function talk({ phone, data }: Pair, text: string): Promise<void> {
  phone.peer.send(text);
  expect((await data.next()).data.toString()).toBe(text);
  data.send(`re: ${text}`);
  expect((await phone.peer.next()).data.toString()).toBe(`re: ${text}`);
}

const isServed = async (host: RawHost) => (await host.createInvite(newId('device'))).inviteToken.length > 0;

describe('a drain of a cell', () => {
  let seated: Seated[];
  let resumeToken: string;
  let pair: Pair;
  let moved: Seated[];

  beforeAll(async () => {
    seated = [];
    for (let left = 4; left > 0; left -= 1) seated.push(await fleet.seatIn('us-central1'));
    ({ resumeToken } = await installDevice(seated[0]!.host));
    pair = await connectPair(seated[0]!.host, resumeToken);
    expect(await setAdmission('c1', 'migration-only')).toEqual({ answer: 'ok' });
    expect(await operate('select relay_v1.start_drain($1, $2, $3) as answer', ['c1', GRACE_MS, PACE_MS])).toEqual({
      answer: 'ok',
    });
  });

  test('tells the hosts one by one; who was not told yet goes on as ever', async () => {
    const [first, , , last] = seated;
    expect(await first?.host.expect('drain')).toEqual({
      type: 'drain',
      graceMs: GRACE_MS,
      recovery: 'resolve-director',
    });
    expect(await isServed(last!.host)).toBe(true);
    await talk(await connectInvite(last!.host), 'not yet');
    const phone = await RawPhone.knock(fleet.cell().origin, first!.identity.relayHostId, resumeToken);
    expect(await phone.refused()).toMatchObject({ code: 4503, reason: 'relay draining' });
    expect(last?.host.waiting('drain')).toEqual([]);
  });

  test('lets in nobody else', async () => {
    const again = fleet.dial(seated[3]!.identity, seated[3]!.grant);
    await expect(again).rejects.toThrow(/4503.*relay draining/);
    expect(await isServed(seated[3]!.host)).toBe(true);
  });

  test('every host finds its next cell at the director by rule 5, while its seat lives on for the grace', async () => {
    const first = async (): Promise<Seated> => {
      const { identity } = seated[0]!;
      const grant = await assign(fleet.director.origin, await fleet.token(identity), identity);
      return { identity, grant, host: await fleet.dial(identity, grant) };
    };
    const redials = [first(), ...seated.slice(1).map(redial)];
    await fleet.advance(PACE_MS, 2_000);
    moved = await Promise.all(redials);
    for (const host of moved) {
      expect(host.grant).toMatchObject({ cellUrl: fleet.cell(1).origin, assignmentEpoch: 2 });
      expect(await row(host)).toEqual({ cell_id: 'c2', epoch: 2 });
      expect(await isServed(host.host)).toBe(true);
    }
    expect(await migrations(seated)).toEqual(
      seated.map(() => ({
        source_cell: 'c1',
        target_cell: 'c2',
        pinned: true,
        registered: true,
        completed: false,
        aborted: false,
      })),
    );
    await talk(pair, 'still here');
    const beats = await fleet.database.query(`select ready from relay.cell_runtime where cell_id = 'c1'`);
    expect(beats).toEqual([{ ready: true }]);
    const { body } = await askResolve(fleet.director.origin, seated[0]!.identity.relayHostId, resumeToken);
    expect(body).toMatchObject({ cellUrl: fleet.cell(1).origin });
  });

  test('after the grace what is left here is closed 4503, the migrations are complete, and nobody lost a seat', async () => {
    await fleet.advance(GRACE_MS, 10_000);
    for (const { host } of seated) {
      expect(await host.peer.close()).toMatchObject({ code: 4503, reason: 'resolve configured director' });
    }
    for (const peer of [pair.phone.peer, pair.data]) expect((await peer.close()).code).toBe(4503);
    await until(
      'all migrations complete',
      () => migrations(seated),
      (seen) => seen.every(({ completed }) => completed),
    );
    expect(await fleet.database.query('select * from relay_v1.open_migrations')).toEqual([]);
    const drains = await until(
      'the cell drained',
      () => fleet.database.query('select hosts, told, "left", seated, retiring, progress::float8 from relay_v1.drains'),
      (seen) => seen[0]?.left === 0,
    );
    expect(drains).toEqual([{ hosts: 4, told: 4, left: 0, seated: 0, retiring: 0, progress: 1 }]);
    for (const host of moved) {
      expect(await isServed(host.host)).toBe(true);
      expect(await fleet.leases(host.identity)).toEqual([
        { cell_id: 'c2', epoch: 2, generation: 1, state: 'active', units: 1 },
      ]);
    }
    await talk(await connectPair(moved[0]!.host, resumeToken), 'over there');
    expect(total(await scrape(fleet.cell().origin), 'orca_relay_controls')).toBe(0);
    expect(total(await scrape(fleet.cell(1).origin), 'orca_relay_controls')).toBe(4);
    expect(fleet.problems()).toEqual([]);
  });

  test('the cell lets hosts in again once the drain is cancelled', async () => {
    expect(await operate('select relay_v1.cancel_drain($1) as answer', ['c1'])).toEqual({ answer: 'ok' });
    expect(await setAdmission('c1', 'general')).toEqual({ answer: 'ok' });
    await until(
      'no drain here',
      async () => total(await scrape(fleet.cell().origin), 'orca_relay_cell_draining'),
      (draining) => draining === 0,
    );
    expect((await fleet.seatIn('us-central1')).grant.cellUrl).toBe(fleet.cell().origin);
  });
});

describe('an evacuation', () => {
  test('S19 target first: it completes only after the source is drained, the source reads 4503, the row is at epoch+1', async () => {
    const seated = await fleet.seatIn('us-central1');
    const pair = await connectInvite(seated.host);
    await setAdmission('c1', 'migration-only');
    const evacuated = await operate('select outcome from relay_v1.evacuate_cell($1, $2)', ['c1', 'c2']);
    expect(evacuated).toEqual({ outcome: 'ok' });
    const redialling = redial(seated);
    const next = await redialling;
    expect(next.grant).toMatchObject({ cellUrl: fleet.cell(1).origin, assignmentEpoch: 2 });
    const open = { source_cell: 'c1', target_cell: 'c2', pinned: false, aborted: false };
    expect(await migrations([seated])).toEqual([{ ...open, registered: true, completed: false }]);
    await talk(pair, 'until the end');
    await fleet.advance(50_000);
    expect(await migrations([seated])).toEqual([{ ...open, registered: true, completed: false }]);
    await talk(pair, 'of the grace');
    await fleet.advance(12_000);
    expect(await seated.host.peer.close()).toMatchObject({ code: 4503, reason: 'control migration completed' });
    expect((await pair.phone.peer.close()).code).toBe(4503);
    await until(
      'the migration complete',
      () => migrations([seated]),
      ([seen]) => seen?.completed === true,
    );
    expect(await row(seated)).toEqual({ cell_id: 'c2', epoch: 2 });
    expect(await isServed(next.host)).toBe(true);
    expect(fleet.problems()).toEqual([]);
  });
});

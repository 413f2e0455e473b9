import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Seated } from './support/fleet.ts';
import { newId } from './support/identity.ts';
import { assign, connectInvite, type Pair } from './support/parts.ts';
import { scrape, total } from './support/scrape.ts';
import { until } from './support/wait.ts';

const HOSTS = 200;
const AT_ONCE = 20;
const TALKING = 10;
/** Far more than the pace and what a busy machine takes to move everybody. */
const GRACE_MS = 180_000;
const PACE_MS = 40_000;
/** Measured: 11. Over pace and grace this bounds what a roll asks of the database a second. */
const MAX_TRANSACTIONS_PER_HOST = 20;

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}, { region: 'europe-west1' }], tokenLifeSeconds: 3_600 });
});
afterAll(() => fleet?.stop());

async function answer(call: string): Promise<unknown> {
  return (await fleet.database.query(`select ${call} as answer`))[0]?.answer;
}

async function controls(): Promise<number> {
  const samples = await Promise.all(fleet.cells.map(({ origin }) => scrape(origin)));
  return samples.reduce((sum, of) => sum + total(of, 'orca_relay_controls'), 0);
}

async function transactions(): Promise<number> {
  const [row] = await fleet.database.query(
    'select (xact_commit + xact_rollback)::float8 as count from pg_stat_database where datname = current_database()',
  );
  return Number(row?.count);
}

/** Goes where the director says once it is told to leave. */
async function follow({ identity, host }: Seated): Promise<Seated> {
  await host.expect('drain', 120_000);
  const grant = await assign(fleet.director.origin, await fleet.token(identity), identity);
  return { identity, grant, host: await fleet.dial(identity, grant) };
}

async function echo({ phone, data }: Pair): Promise<string> {
  phone.peer.send('still?');
  return (await data.next()).data.toString();
}

test('a roll of a cell with 200 hosts: isolate, drain, replace, restore; nobody is lost, doubled or cut early', async () => {
  const seated: Seated[] = [];
  while (seated.length < HOSTS) {
    seated.push(...(await Promise.all(Array.from({ length: AT_ONCE }, () => fleet.seatIn('us-central1')))));
  }
  const pairs: Pair[] = [];
  for (const { host } of seated.slice(0, TALKING)) {
    pairs.push(await connectInvite(host));
    await fleet.advance(20_000, 20_000);
  }
  expect(total(await scrape(fleet.cell().origin), 'orca_relay_controls')).toBe(HOSTS);
  const before = await transactions();

  expect(await answer(`relay_v1.isolate_for_roll('c1')`)).toBe('ok');
  expect(await answer(`relay_v1.start_drain('c1', ${GRACE_MS}, ${PACE_MS})`)).toBe('ok');
  const leaving = Promise.all(seated.map(follow));
  await fleet.advance(PACE_MS, 500);
  const moved = await leaving;
  expect(new Set(moved.map(({ grant }) => grant.cellUrl))).toEqual(new Set([fleet.cell(1).origin]));
  expect(await Promise.all(pairs.map(echo))).toEqual(pairs.map(() => 'still?'));

  await fleet.advance(GRACE_MS, 5_000);
  for (const { host } of seated) expect((await host.peer.close()).code).toBe(4503);
  for (const { phone } of pairs) expect((await phone.peer.close()).code).toBe(4503);
  await until('every host seated once', controls, (count) => count === HOSTS);
  const spent = ((await transactions()) - before) / HOSTS;
  expect(spent).toBeLessThan(MAX_TRANSACTIONS_PER_HOST);

  await fleet.cell().stop();
  await fleet.cell().start();
  await until(
    'the new process taking hosts',
    async () => total(await scrape(fleet.cell().origin), 'orca_relay_heartbeats_total', { answer: 'ok' }),
    (beats) => beats > 0,
  );
  expect(total(await scrape(fleet.cell().origin), 'orca_relay_cell_draining')).toBe(0);
  expect(await answer(`relay_v1.restore_after_roll('c1')`)).toBe('ok');
  expect((await fleet.seatIn('us-central1')).grant.cellUrl).toBe(fleet.cell().origin);

  const leases = await fleet.database.query(
    `select count(*)::int as leases, count(distinct l.relay_host_id)::int as hosts from relay.lease l
     join relay.assignment a using (user_id, relay_host_id, cell_id, epoch)
     where l.state = 'active' and l.expires_at > relay.now() and l.relay_host_id = any($1)`,
    [moved.map(({ identity }) => identity.relayHostId)],
  );
  expect(leases).toEqual([{ leases: HOSTS, hosts: HOSTS }]);
  for (const { host } of moved.slice(0, TALKING)) {
    expect((await host.createInvite(newId('device'))).inviteToken).not.toBe('');
  }
  expect(fleet.problems()).toEqual([]);
});

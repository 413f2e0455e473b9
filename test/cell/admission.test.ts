import pg from 'pg';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { Fleet } from '../acceptance/support/fleet.ts';
import { newIdentity } from '../acceptance/support/identity.ts';
import { connectInvite, installDevice } from '../acceptance/support/parts.ts';
import { refusal } from '../acceptance/support/peer.ts';
import { RawHost } from '../acceptance/support/raw-host.ts';
import { RawPhone } from '../acceptance/support/raw-phone.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { until } from '../acceptance/support/wait.ts';

let fleet: Fleet;
afterEach(async () => {
  expect(fleet.problems()).toEqual([]);
});

const metric = async (name: string, labels: Record<string, string> = {}, cell = 0) =>
  total(await scrape(fleet.cell(cell).origin), name, labels);

describe('a cell that is not known yet', () => {
  beforeAll(async () => {
    fleet = await Fleet.start();
  });
  afterAll(() => fleet?.stop());

  test('takes nobody before its first beat is accepted, and says to come again', async () => {
    const { identity, grant } = await fleet.seat();
    await fleet.database.query('alter function relay_v1.heartbeat rename to heartbeat_away');
    await fleet.cell().stop();
    await fleet.cell().start();
    const token = await fleet.token(identity);
    const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, token };
    const refused = await refusal(RawHost.upgrade(identity, options).then(({ peer }) => peer));
    expect(refused).toMatchObject({ status: 503, headers: { 'retry-after': '2' } });
    const phone = await refusal(RawPhone.upgrade(grant.cellUrl, identity.relayHostId).then(({ peer }) => peer));
    expect(phone.status).toBe(503);
    expect((await fetch(`${grant.cellUrl}/ready`)).status).toBe(503);
    expect((await fetch(`${grant.cellUrl}/health`)).status).toBe(200);
    await fleet.database.query('alter function relay_v1.heartbeat_away rename to heartbeat');
    fleet.clock.jump(4_000);
    await until(
      'the host seated',
      () =>
        fleet.dial(identity, grant).then(
          () => true,
          () => false,
        ),
      (seated) => seated,
    );
  });
});

describe('a cell whose database is slow (wire 2.11)', () => {
  beforeAll(async () => {
    fleet = await Fleet.start({ cells: [{ env: { ORCA_RELAY_DATABASE_POOL_MAX: '1' } }] });
  });
  afterAll(() => fleet?.stop());

  test('sheds new hosts with 503 and Retry-After 2, and never a rebind', async () => {
    const { identity, grant, host } = await fleet.seat();
    const locker = new pg.Client({ connectionString: fleet.database.url });
    await locker.connect();
    await locker.query('begin');
    await locker.query('lock table relay.assignment in access exclusive mode');
    const stranger = newIdentity();
    const options = async (who = stranger) => ({
      origin: grant.cellUrl,
      epoch: grant.assignmentEpoch,
      token: await fleet.token(who),
    });
    const waiting = await Promise.all(
      Array.from({ length: 8 }, async () => {
        const waiter = newIdentity();
        const dial = await options(waiter);
        const host = await RawHost.upgrade(waiter, dial);
        host.hello(dial);
        return host;
      }),
    );
    await until(
      'the pool to be busy for a second',
      async () => {
        const dial = await options();
        const answer = await refusal(RawHost.upgrade(stranger, dial).then(({ peer }) => peer)).catch(() => null);
        return answer === null ? null : { status: answer.status, retryAfter: answer.headers['retry-after'] };
      },
      (seen) => seen?.status === 503 && seen.retryAfter === '2',
    );
    expect(await metric('orca_relay_host_hellos_shed_total')).toBeGreaterThan(0);
    const rebind = await RawHost.upgrade(identity, await options(identity));
    expect(rebind.peer.isOpen).toBe(true);
    expect(host.peer.isOpen).toBe(true);
    await locker.query('rollback');
    await locker.end();
    for (const { peer } of [...waiting, rebind]) peer.drop();
  });
});

describe('a capped cell', () => {
  beforeAll(async () => {
    fleet = await Fleet.start({ cells: [{ limit: { hardCap: 600, unobservedBound: 60 } }] });
  });
  afterAll(() => fleet?.stop());

  test('keeps a unit for the data socket of every phone it lets in, and tells Postgres what it holds', async () => {
    const { host } = await fleet.seat();
    const pair = await connectInvite(host);
    expect(await metric('orca_relay_cell_units')).toBe(3);
    expect(await metric('orca_relay_cell_units_reserved')).toBe(0);
    const waiting = await RawPhone.knock(host.origin, host.identity.relayHostId, 'x'.repeat(43));
    await waiting.refused();
    await fleet.advance(15_000);
    await until(
      'a beat with the splice',
      () => fleet.database.query('select enforced_units, total_connections, reserved_units from relay.cell_runtime'),
      ([row]) => row?.enforced_units === 3 && row.total_connections === 3 && row.reserved_units === 0,
    );
    pair.phone.peer.hangUp();
    await pair.data.closed;
    await until(
      'the units back',
      () => metric('orca_relay_cell_units'),
      (units) => units === 1,
    );
    expect(await metric('orca_relay_cell_unit_faults')).toBe(0);
  });
});

describe('the end of a cell process (SIGTERM)', () => {
  beforeAll(async () => {
    fleet = await Fleet.start();
  });
  afterAll(() => fleet?.stop());

  test('everybody reads why, the leases are given up, and no beat says ready any more', async () => {
    const [first, second] = await Promise.all([fleet.seat(), fleet.seat()]);
    const device = await installDevice(first.host);
    const spliced = await connectInvite(first.host);
    const waiting = await RawPhone.knock(first.host.origin, first.identity.relayHostId, device.resumeToken);
    await first.host.connOpen();
    const silent = await RawPhone.upgrade(first.host.origin, first.identity.relayHostId);
    const started = performance.now();
    await fleet.cell().stop();
    expect(performance.now() - started).toBeLessThan(5_000);
    for (const { host, identity } of [first, second]) {
      expect(await host.expect('drain')).toMatchObject({ graceMs: 0 });
      expect(await host.peer.close()).toMatchObject({ code: 4503 });
      expect(await fleet.leases(identity)).toEqual([]);
    }
    expect((await spliced.phone.peer.close()).code).toBe(4503);
    expect((await spliced.data.close()).code).toBe(4503);
    expect((await waiting.refused()).code).toBe(4503);
    expect((await silent.peer.close()).code).toBe(4503);
    expect(await fleet.database.query('select ready from relay.cell_runtime')).toEqual([{ ready: false }]);
    await fleet.cell().start();
    await fleet.heard();
    const again = await fleet.dial(first.identity, first.grant);
    expect(again.ack?.generation).toBe(1);
  });
});

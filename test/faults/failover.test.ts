import { afterAll, beforeAll, expect, test } from 'vitest';
import { Fleet, type Node, type Seated } from '../acceptance/support/fleet.ts';
import { type HostIdentity, newIdentity } from '../acceptance/support/identity.ts';
import { type OwnPostgres, startOwnPostgres } from '../acceptance/support/own-postgres.ts';
import { askAssign, type Grant } from '../acceptance/support/parts.ts';
import { scrape, total } from '../acceptance/support/scrape.ts';
import { type Standby, startStandby } from '../acceptance/support/standby.ts';
import { startTcpProxy, type TcpProxy } from '../acceptance/support/tcp-proxy.ts';
import { until } from '../acceptance/support/wait.ts';

let primary: OwnPostgres;
let standby: Standby;
/** What every process dials: the primary, and after the failover the standby. */
let proxy: TcpProxy;
const target = { host: '127.0.0.1', port: 0 };
let fleet: Fleet;
beforeAll(async () => {
  primary = await startOwnPostgres();
  target.port = Number(new URL(primary.url).port);
  proxy = await startTcpProxy(target);
  standby = await startStandby(primary);
  const rewriteUrl = (url: string) => proxy.through(url);
  fleet = await Fleet.start({ database: primary, cells: [{}, {}], processes: true, rewriteUrl });
});
afterAll(async () => {
  try {
    await fleet?.stop();
  } finally {
    await proxy?.stop();
    await standby?.stop();
    await primary?.drop();
  }
});

/** As the decision functions move a host, at once, on the server that is written to now. */
async function moveByHand(query: Standby['query'], { identity, grant }: Seated): Promise<string> {
  const from = fleet.cellAt(grant.cellUrl);
  const to = fleet.cells.find((cell) => cell !== from) as Node;
  await query(
    `with gone as (
       delete from relay.lease where user_id = $1 and relay_host_id = $2
     ), moved as (
       update relay.assignment set cell_id = $4, epoch = greatest(epoch + 1, (select epoch_base + 1 from relay.setting))
       where user_id = $1 and relay_host_id = $2 returning epoch
     )
     insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
     select 'moved', $3, $4, $1, $2, epoch, 'by-hand', '{"forced": true}', relay.now() from moved`,
    [identity.userId, identity.relayHostId, from.id, to.id],
  );
  return to.origin;
}

async function granted(identity: HostIdentity): Promise<Grant> {
  const answer = await until(
    'a grant',
    async () => askAssign(fleet.director.origin, await fleet.token(identity), identity, { reconnect: true }),
    ({ status }) => status === 200,
  );
  return answer.body as unknown as Grant;
}

async function resyncs(node: Node): Promise<number> {
  return total(await scrape(node.origin), 'orca_relay_change_resyncs_total', { reason: 'timeline' });
}

test('V1 a promoted standby that lost commits: readers start anew, no change is skipped, no epoch comes twice', async () => {
  const kept = await fleet.seat();
  const movedInTheDark = await fleet.seat();
  await standby.caughtUp();
  await standby.cutOff();

  // What the standby will never know of: a host's first seat, and a move.
  const bornInTheDark = await fleet.seat();
  const darkOrigin = await moveByHand((text, values) => primary.query(text, values), movedInTheDark);
  expect((await movedInTheDark.host.peer.close()).code).toBe(4409);
  const darkGrant = await granted(movedInTheDark.identity);
  expect(darkGrant).toMatchObject({ cellUrl: darkOrigin, assignmentEpoch: 2 });
  const darkHost = await fleet.dial(movedInTheDark.identity, darkGrant);

  proxy.refuse();
  await primary.crash();
  await standby.promote();
  target.port = standby.port;
  proxy.restore();

  for (const node of [fleet.director, ...fleet.cells]) {
    await until(
      `${node.id} starts anew`,
      () => resyncs(node),
      (count) => count > 0,
    );
  }
  expect(kept.host.peer.isOpen).toBe(true);

  // Seats that the new primary does not know end, and their hosts come back above every epoch that was ever given.
  for (const { host, identity } of [
    { host: darkHost, identity: movedInTheDark.identity },
    { host: bornInTheDark.host, identity: bornInTheDark.identity },
  ]) {
    await until(
      'an unknown seat ended',
      () => host.peer.isOpen,
      (open) => !open,
      60_000,
    );
    const grant = await granted(identity);
    expect(grant.assignmentEpoch).toBeGreaterThan(1_000);
    await fleet.dial(identity, grant);
  }
  const newcomer = newIdentity();
  expect((await granted(newcomer)).assignmentEpoch).toBeGreaterThan(1_000);

  // A change written after the promotion reaches its cell, though its id was used before.
  await moveByHand(standby.query, kept);
  expect((await kept.host.peer.close(20_000)).code).toBe(4409);
  expect((await granted(kept.identity)).assignmentEpoch).toBeGreaterThan(1_000);
});

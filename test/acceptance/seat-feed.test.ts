import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { cellAudience, signServiceToken } from '../../server/service-token.ts';
import { Fleet } from './support/fleet.ts';
import { newIdentity } from './support/identity.ts';
import { assign } from './support/parts.ts';
import { directorToken, readFeed, readFull, readSince } from './support/seat-feed.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet?.stop());

const cell = () => fleet.cell();

async function ask(query: string, authorization: string | null): Promise<[number, unknown]> {
  const headers: Record<string, string> = authorization === null ? {} : { authorization };
  const reply = await fetch(`${cell().origin}/v1/admin/cell-seats${query}`, { headers });
  return [reply.status, await reply.json()];
}

describe('who sits on a cell, as a director reads it (85)', () => {
  test('85 the first poll is full and equal to its counts', async () => {
    const { identity, grant } = await fleet.seat();
    const page = await readFull(fleet, cell());
    expect(page.counts.seats).toBe(page.full.length);
    expect(page.counts.controls).toBe(page.full.length);
    expect(page).toMatchObject({ v: 1, cellId: 'c1', draining: false, admitModeRaw: 'db', admitModeEffective: 'db' });
    expect(page.counts).toMatchObject({ bookings: 0, units: page.full.length, ceiling: 900 });
    expect(page.intake).toEqual({ perSec: 5, burst: 20, tokens: 20 });
    expect(Math.abs(page.at - fleet.clock.wallNow())).toBeLessThan(5_000);
    const { userId, relayHostId } = identity;
    const seat = page.full.find((held) => held.relayHostId === relayHostId);
    expect(seat).toMatchObject({ userId, epoch: grant.assignmentEpoch, generation: 1, state: 'active' });
  });

  test('85 join, drain-only, active and leave come as changes; an orphan stays seated for its grace', async () => {
    const before = await readFull(fleet, cell());
    const identity = newIdentity();
    const token = await fleet.token(identity, { lifeSeconds: 30 });
    const grant = await assign(fleet.director.origin, token, identity);
    const host = await fleet.dial(identity, grant, { token });
    const joined = await readSince(fleet, cell(), before);
    expect(joined.changes).toMatchObject([
      { seq: before.seq + 1, kind: 'join', epoch: grant.assignmentEpoch, generation: 1, state: 'active' },
    ]);
    expect(joined.counts.seats).toBe(before.counts.seats + 1);

    // Past the token's end, found at the next ping.
    await fleet.advance(45_000);
    const expired = await readSince(fleet, cell(), joined);
    expect(expired.changes).toMatchObject([{ kind: 'drain-only', relayHostId: identity.relayHostId }]);
    const full = await readFull(fleet, cell());
    expect(full.full.find(({ relayHostId }) => relayHostId === identity.relayHostId)?.state).toBe('drain-only');
    host.send({ type: 'auth-refresh', relayJwt: await fleet.token(identity) });
    const refreshed = await until(
      'the refresh in the feed',
      () => readSince(fleet, cell(), expired),
      (page) => page.changes.length > 0,
    );
    expect(refreshed.changes).toMatchObject([{ kind: 'active' }]);

    host.drop();
    const orphaned = await until(
      'the socket gone',
      () => readSince(fleet, cell(), refreshed),
      (page) => page.counts.controls < refreshed.counts.controls,
    );
    expect(orphaned).toMatchObject({ changes: [], counts: { seats: refreshed.counts.seats } });
    await fleet.advance(31_000);
    const gone = await readSince(fleet, cell(), orphaned);
    expect(gone.changes).toMatchObject([{ kind: 'leave', generation: 1, closeCode: 1006 }]);
    expect(gone.counts.seats).toBe(orphaned.counts.seats - 1);
    const { recentlyLeft } = await readFull(fleet, cell());
    expect(recentlyLeft.at(-1)).toMatchObject({
      userId: identity.userId,
      relayHostId: identity.relayHostId,
      epoch: grant.assignmentEpoch,
      closeCode: 1006,
    });
  });

  test('85 a rebind is a join only, of the same generation; a new generation is a join of its own', async () => {
    const { identity, grant, host } = await fleet.seat();
    const before = await readFull(fleet, cell());
    const { epoch, joinedAt } = before.full.find(({ relayHostId }) => relayHostId === identity.relayHostId)!;
    const rebound = await fleet.dial(identity, grant, { previous: host.previous });
    await host.peer.close();
    const after = await readSince(fleet, cell(), before);
    expect(after.changes).toMatchObject([{ kind: 'join', epoch, generation: 1 }]);
    expect(after.changes[0]?.at).toBeGreaterThanOrEqual(joinedAt);
    expect(after.counts.seats).toBe(before.counts.seats);

    await fleet.dial(identity, grant);
    expect((await rebound.peer.close()).code).toBe(4408);
    const anew = await readSince(fleet, cell(), after);
    expect(anew.changes).toMatchObject([{ kind: 'join', epoch, generation: 2 }]);
    expect(anew.counts.seats).toBe(before.counts.seats);
  });

  test('85 a seat that is taken away leaves with the code of its close', async () => {
    const seated = await fleet.seat();
    const before = await readFull(fleet, cell());
    await fleet.database.query(
      `with moved as (update relay.assignment set epoch = epoch + 1
         where relay_host_id = $1 returning user_id, relay_host_id, epoch)
       insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
       select 'moved', 'c1', 'c1', user_id, relay_host_id, epoch, 'by-hand', '{"forced": true}', relay.now() from moved`,
      [seated.identity.relayHostId],
    );
    expect((await seated.host.peer.close()).code).toBe(4409);
    const after = await readSince(fleet, cell(), before);
    expect(after.changes).toMatchObject([{ kind: 'leave', closeCode: 4409 }]);
  });

  test('85 another incarnation, or a cursor ahead of the head: full', async () => {
    const { incarnation, seq } = await readFull(fleet, cell());
    expect(await readFeed(fleet, cell(), `?since=${incarnation}:${seq + 1}`)).toHaveProperty('full');
    await cell().stop();
    await cell().start();
    await fleet.heard();
    const page = await readFeed(fleet, cell(), `?since=${incarnation}:${seq}`);
    expect(page).toMatchObject({ full: [], recentlyLeft: [], seq: 0 });
    expect(page.incarnation).not.toBe(incarnation);
  });

  test('85 a malformed cursor is 400, a wrong identity 401, and a director has no seats', async () => {
    const right = `Bearer ${await directorToken(fleet, cell())}`;
    const role = 'director' as const;
    const elsewhere = await signServiceToken(
      fleet.signingKey,
      { caller: 'd', role, audience: cellAudience('c2') },
      fleet.clock,
    );
    for (const since of ['', 'x', ':1', 'a:', 'a:-1', 'a:1.5', 'a:1234567890123456', `${'a'.repeat(65)}:1`, 'a_b:1']) {
      expect(await ask(`?since=${since}&reserver=1`, right), since).toEqual([400, { error: 'invalid_request' }]);
    }
    for (const wrong of [null, 'Bearer x', `Bearer ${elsewhere}`, right.slice(7)]) {
      expect(await ask('', wrong)).toEqual([401, { error: 'invalid_token' }]);
      expect(await ask('?since=x', wrong)).toEqual([401, { error: 'invalid_token' }]);
    }
    const reply = await fetch(`${fleet.director.origin}/v1/admin/cell-seats`);
    expect([reply.status, await reply.json()]).toEqual([404, { error: 'cell_only' }]);
  });
});

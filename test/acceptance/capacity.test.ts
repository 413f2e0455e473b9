import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { Fleet, type Node } from './support/fleet.ts';
import { newId, newIdentity } from './support/identity.ts';
import { askAssign, assign, connectInvite, connectPair } from './support/parts.ts';
import { Peer, refusal } from './support/peer.ts';
import { RawHost } from './support/raw-host.ts';
import { RawPhone } from './support/raw-phone.ts';
import { scrape, total } from './support/scrape.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
/** 4 ordinary units: 104 less the 100 kept for hosts that rebind. */
let small: Node;
beforeAll(async () => {
  fleet = await Fleet.start({
    directors: 2,
    cells: [{ region: 'small', limit: { hardCap: 104, unobservedBound: 0 } }, { region: 'large' }],
  });
  small = fleet.cell(0);
});
afterAll(() => fleet?.stop());

const units = (count: number) =>
  until(
    `${count} units`,
    () => fleet.units(small),
    (seen) => seen === count,
  );

describe('a capped cell', () => {
  test('a phone needs two units, a control one, and a rebind may use the reserve', async () => {
    const { identity, grant, host } = await fleet.seatIn('small');
    expect(grant.cellUrl).toBe(small.origin);
    const pair = await connectInvite(host);
    await units(3);
    expect((await refusal(RawPhone.upgrade(small.origin, identity.relayHostId).then(({ peer }) => peer))).status).toBe(
      503,
    );

    const other = newIdentity();
    const options = { origin: small.origin, token: await fleet.token(other), epoch: 1 };
    const fourth = await RawHost.upgrade(other, options);
    await units(4);
    expect(
      (await refusal(RawHost.upgrade(newIdentity(), { ...options, token: await fleet.token(newIdentity()) }))).status,
    ).toBe(503);
    expect((await refusal(Peer.dial(`${small.origin}/v1/host/data/${newId('conn')}`))).status).toBe(503);

    const again = await fleet.dial(identity, grant, { previous: host.previous });
    expect(again.ack?.generation).toBe(1);
    await host.peer.closed;
    fourth.drop();
    await units(3);
    pair.phone.peer.hangUp();
    await units(1);
    again.peer.hangUp(1000, 'signed-out');
    await units(0);
  });

  test('the unit kept for the host’s data socket goes back and forth with bad tickets, and is returned once', async () => {
    const { identity, host } = await fleet.seatIn('small');
    const { inviteToken } = await host.createInvite(newId('device'));
    const phone = await RawPhone.knock(host.origin, identity.relayHostId, inviteToken);
    const open = await host.connOpen();
    await units(3);
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const bad = await host.attach(open, { generation: 9 });
      expect((await bad.close()).code).toBe(4401);
      await units(3);
    }
    const data = await host.attach(open);
    expect(await phone.hello()).toMatchObject({ ok: true });
    await units(3);
    data.drop();
    await phone.peer.closed;
    await units(1);
    host.peer.hangUp(1000, 'signed-out');
    await units(0);
    expect(total(await scrape(small.origin), 'orca_relay_cell_unit_faults')).toBe(0);
  });

  test('a full cell takes no new host: it goes to another region, until there is room again', async () => {
    const seated = [];
    for (let count = 0; count < 4; count += 1) {
      const one = await fleet.seatIn('small');
      expect(one.grant.cellUrl).toBe(small.origin);
      seated.push(one);
    }
    const next = await fleet.seatIn('small');
    expect(fleet.cellAt(next.grant.cellUrl).id).toBe('c2');
    await units(4);
    for (const { host } of seated) host.peer.hangUp(1000, 'signed-out');
    await units(0);
    await fleet.advance(16_000);
    expect(fleet.cellAt((await fleet.seatIn('small')).grant.cellUrl)).toBe(small);
  });
});

describe('two directors', () => {
  test('asked at once for one new host, they agree on its cell and epoch', async () => {
    for (let round = 0; round < 5; round += 1) {
      const identity = newIdentity();
      const token = await fleet.token(identity);
      const asked = await Promise.all(
        [0, 1].flatMap(() => fleet.directors.map(({ origin }) => askAssign(origin, token, identity))),
      );
      const granted = asked.filter(({ status }) => status === 200);
      expect(granted.length).toBeGreaterThan(0);
      expect(asked.every(({ status }) => status === 200 || status === 503)).toBe(true);
      const seats = new Set(granted.map(({ body }) => `${body.cellUrl} ${body.assignmentEpoch}`));
      expect([...seats]).toHaveLength(1);
      const rows = await fleet.database.query(`select 1 from relay.change where kind = 'placed' and user_id = $1`, [
        identity.userId,
      ]);
      expect(rows).toHaveLength(1);
    }
  });

  test('what one granted, the other keeps, and a phone may ask either', async () => {
    const { identity, grant, host } = await fleet.seatIn('large');
    const [, second] = fleet.directors as [Node, Node];
    expect(await assign(second.origin, await fleet.token(identity), identity)).toMatchObject({
      cellUrl: grant.cellUrl,
      assignmentEpoch: grant.assignmentEpoch,
    });
    const { inviteToken } = await host.createInvite(newId('device'));
    const phone = await RawPhone.knock(second.origin, identity.relayHostId, inviteToken);
    expect(await phone.answer()).toMatchObject({ type: 'relay-moved', cellUrl: grant.cellUrl });
    expect((await connectPair(host, inviteToken)).hello.ok).toBe(true);
  });
});

import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { Fleet } from './support/fleet.ts';
import { hashOf, newId, newIdentity, newToken } from './support/identity.ts';
import { connectPair, installDevice } from './support/parts.ts';
import { type Moved, RawPhone } from './support/raw-phone.ts';
import { until } from './support/wait.ts';

let fleet: Fleet;
beforeAll(async () => {
  fleet = await Fleet.start();
});
afterAll(() => fleet?.stop());

async function restartCell(): Promise<void> {
  await fleet.cell().stop();
  await fleet.cell().start();
  await fleet.heard();
}

describe('an invite through the director', () => {
  test('S20 it survives a restart of the cell: moved, 4503, nothing reserved, then used', async () => {
    const { identity, grant, host } = await fleet.seat();
    const { inviteToken } = await host.createInvite(newId('device'));
    await restartCell();
    expect((await host.peer.close()).code).toBe(4503);

    const phone = await RawPhone.knock(fleet.director.origin, identity.relayHostId, inviteToken);
    const moved = (await phone.answer()) as Moved;
    expect(moved).toEqual({
      type: 'relay-moved',
      v: 1,
      cellUrl: grant.cellUrl,
      assignmentEpoch: grant.assignmentEpoch,
    });
    expect(await phone.peer.close()).toMatchObject({ code: 4503, reason: 'connect to assigned cell' });
    expect(await fleet.inviteState(inviteToken)).toBe('available');
    const [row] = await fleet.database.query('select attempts from relay.invite where token_hash = $1', [
      hashOf(inviteToken),
    ]);
    expect(row?.attempts).toBe(0);

    const back = await fleet.dial(identity, grant);
    const pair = await connectPair(back, inviteToken);
    expect(pair.hello).toMatchObject({ ok: true, credentialKind: 'invite' });
  });

  test('S20 anything but a good invite is 4401 there', async () => {
    const { identity, host } = await fleet.seat();
    const device = await installDevice(host);
    const { inviteToken } = await host.createInvite(newId('device'));
    const elsewhere = newIdentity().relayHostId;
    for (const [hostId, credential] of [
      [identity.relayHostId, newToken()],
      [identity.relayHostId, device.resumeToken],
      [elsewhere, inviteToken],
    ] as const) {
      const phone = await RawPhone.knock(fleet.director.origin, hostId, credential);
      expect(await phone.refused()).toMatchObject({ code: 4401, reason: 'invalid invite' });
    }
  });

  test('S20 an expired invite is 4401 there', async () => {
    const { identity, host } = await fleet.seat();
    const { inviteToken } = await host.createInvite(newId('device'));
    host.mute = true;
    host.drop();
    await fleet.advance(571_000, 30_000);
    const phone = await RawPhone.knock(fleet.director.origin, identity.relayHostId, inviteToken);
    expect(await phone.refused()).toMatchObject({ code: 4401, reason: 'invalid invite' });
  });
});

describe('the host’s last word', () => {
  async function knockOffline(relayHostId: string, resumeToken: string): Promise<string> {
    const phone = await RawPhone.knock(fleet.cell().origin, relayHostId, resumeToken);
    const close = await phone.refused();
    expect(close.code).toBe(4404);
    return close.reason;
  }
  let device: Awaited<ReturnType<typeof installDevice>>;
  let seated: Awaited<ReturnType<typeof fleet.seat>>;
  beforeEach(async () => {
    seated = await fleet.seat();
    device = await installDevice(seated.host);
  });

  async function hangUp(reason: string): Promise<void> {
    seated.host.peer.hangUp(1000, reason);
    await seated.host.peer.closed;
  }
  async function reasonInRow(): Promise<unknown> {
    const { userId, relayHostId } = seated.identity;
    const text = 'select last_close_reason from relay.assignment where user_id = $1 and relay_host_id = $2';
    return (await fleet.database.query(text, [userId, relayHostId]))[0]?.last_close_reason;
  }

  test('S26 signed-out is what its phones read, also after a restart of the cell', async () => {
    await hangUp('signed-out');
    await until('the reason in the row', reasonInRow, (reason) => reason === 'signed-out');
    expect(await knockOffline(seated.identity.relayHostId, device.resumeToken)).toBe('signed-out');
    await restartCell();
    expect(await knockOffline(seated.identity.relayHostId, device.resumeToken)).toBe('signed-out');
  });

  test('S26 a new proof forgets it', async () => {
    await hangUp('signed-out');
    await until('the reason in the row', reasonInRow, (reason) => reason === 'signed-out');
    const back = await fleet.dial(seated.identity, seated.grant);
    back.drop();
    await back.peer.closed;
    expect(await knockOffline(seated.identity.relayHostId, device.resumeToken)).toBe('relay connection rejected');
    await fleet.advance(31_000);
    expect(await knockOffline(seated.identity.relayHostId, device.resumeToken)).toBe('relay connection rejected');
  });

  test('S26 invented text is ignored', async () => {
    await hangUp('gone fishing');
    await fleet.advance(31_000);
    expect(await knockOffline(seated.identity.relayHostId, device.resumeToken)).toBe('relay connection rejected');
    expect(await reasonInRow()).toBeNull();
  });
});

describe('heartbeats', () => {
  test('S22 one with an older start is refused', async () => {
    const [runtime] = await fleet.database.query('select started_at from relay.cell_runtime where cell_id = $1', [
      fleet.cell().id,
    ]);
    const startedAt = new Date(runtime?.started_at as string);
    const beat = (incarnation: string, at: Date) =>
      fleet.database.query(
        `select relay_v1.heartbeat(cell_id => $1, url => $2, region => 'us-central1', incarnation => $3, started_at => $4,
           ready => true, load => '{"enforced_units": 0, "inclusion_watermark": 1000000}') as answer`,
        [fleet.cell().id, fleet.cell().origin, incarnation, at],
      );
    const other = '00000000-0000-4000-8000-000000000001';
    const older = new Date(startedAt.getTime() - 1);
    expect((await beat(other, older))[0]?.answer).toBe('stale_cell_incarnation');
    expect((await beat(other, startedAt))[0]?.answer).toBe('stale_cell_incarnation');
  });

  test('V2 a second process of a cell makes the first close its hosts 4503 and stop serving', async () => {
    const cell = await fleet.addCell({ region: 'doubled' });
    await cell.start();
    await fleet.heard();
    const { identity, grant, host } = await fleet.seatIn('doubled');
    expect(grant.cellUrl).toBe(cell.origin);
    const second = await fleet.twin(cell);
    await second.start();
    await fleet.heard([second]);
    await fleet.advance(16_000, 4_000);
    expect((await host.peer.close()).code).toBe(4503);
    await until(
      'the first no longer listening',
      () =>
        fetch(`${cell.origin}/health`).then(
          () => 'listening',
          () => 'gone',
        ),
      (seen) => seen === 'gone',
    );
    // The second serves the same hosts, at the same epoch.
    const again = await fleet.dial(identity, { ...grant, cellUrl: second.origin }, { relayOrigin: cell.origin });
    expect(again.ack?.generation).toBe(1);
    again.drop();
    await second.stop();
  });
});

import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import {
  createPhone,
  type MessageStream,
  newResumeToken,
  pairWithInvite,
  type RelayHost,
  type RelayInvite,
  type RelayPhone,
} from '../../client/index.ts';
import { Fleet, type Node } from '../acceptance/support/fleet.ts';
import { newId } from '../acceptance/support/identity.ts';
import { until } from '../acceptance/support/wait.ts';
import { type EchoHost, echoHost } from './support/echo-host.ts';
import { fromElsewhere, recordingPorts } from './support/recording-ports.ts';

/**
 * One host that has to move because its cell stops, seen from the host, from a phone that was connected, and from phones
 * that know only the old cell. The tests follow each other: one story.
 */
let fleet: Fleet;
let desk: EchoHost;
let host: RelayHost;
let token: string;
let old: Node;
let connected: RelayPhone;
let staleInvite: RelayInvite;
const recorded = recordingPorts(() => fleet.clock.wallNow());

async function echoes(stream: MessageStream): Promise<void> {
  const text = newId('text');
  await stream.send(text);
  expect(await stream.receive()).toBe(text);
}

function phoneAt(endpoint: { cellUrl: string; assignmentEpoch: number }, ports = recordingPorts()) {
  const phone = createPhone(
    {
      directorOrigins: fleet.directors.map((director) => director.origin),
      relayHostId: host.names.relayHostId,
      endpoint,
      resumeTokens: [token],
    },
    ports.ports,
  );
  return { phone, ports };
}

beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}, {}] });
  // A database must have heard its cells for a minute before it believes that one of them is dead.
  await until(
    'a database that judges silence',
    async () => {
      await fleet.advance(5_000);
      return fleet.database.query('select relay.hearing(relay.now())');
    },
    ([row]) => row?.hearing === true,
  );
  desk = await echoHost(fleet, recorded.ports);
  host = desk.host;
  const invite = await host.invite('device-1');
  old = fleet.cellAt(invite.cellUrl);
  const { stream } = await pairWithInvite(invite, { ports: { openSocket: fromElsewhere() } });
  const made = newResumeToken();
  token = made.token;
  await stream.send(`provision ${made.hash}`);
  await stream.receive();
  stream.close();
  staleInvite = await host.invite('device-2');
  connected = phoneAt({ cellUrl: invite.cellUrl, assignmentEpoch: invite.assignmentEpoch }).phone;
  connected.start();
  await echoes((await connected.next('connected')).stream);
});
afterAll(async () => {
  connected.stop();
  host.stop();
  await fleet.stop();
});

describe('when the cell of a host stops', () => {
  test('the host takes its next seat on the other cell, and the connected phone follows', async () => {
    const drained = host.next('drain');
    const moved = host.next('online', ({ cellUrl }) => cellUrl !== old.origin);
    const found = connected.next('endpoint');
    const back = connected.next('connected');
    const stopping = old.stop();
    expect(await drained).toEqual({ cellUrl: old.origin, graceMs: 0 });
    fleet.clock.jump(6_000);
    recorded.fireTimers((ms) => ms > 3_000 && ms <= 5_500);
    const seat = await moved;
    expect(seat).toMatchObject({ assignmentEpoch: 2, rebound: false });
    expect(await found).toEqual({ cellUrl: seat.cellUrl, assignmentEpoch: 2 });
    await echoes((await back).stream);
    await stopping;
  });

  test('an invite that names the old cell, which is gone, pairs through the director', async () => {
    const paired = await pairWithInvite(staleInvite, { ports: { openSocket: fromElsewhere() } });
    expect(paired.endpoint.assignmentEpoch).toBe(2);
    await echoes(paired.stream);
    paired.stream.close();
  });

  test('incident 17: a phone that knows only the old cell, back as a stranger, is on the new one after one answer', async () => {
    await old.start();
    const { phone, ports } = phoneAt({ cellUrl: old.origin, assignmentEpoch: 1 });
    const found = phone.next('connected');
    phone.start();
    const { stream, endpoint } = await found;
    await echoes(stream);
    expect(endpoint.assignmentEpoch).toBe(2);
    expect(ports.sockets.map(({ url }) => new URL(url).host)).toEqual([
      new URL(old.origin).host,
      new URL(endpoint.cellUrl).host,
    ]);
    expect(ports.posts()).toBe(1);
    phone.stop();
  });

  test('so is a new device whose invite names the old cell', async () => {
    const invite = await host.invite('device-3');
    const stale = { ...invite, cellUrl: old.origin, assignmentEpoch: 1 };
    const paired = await pairWithInvite(stale, { ports: { openSocket: fromElsewhere() } });
    expect(paired.endpoint).toEqual({ cellUrl: invite.cellUrl, assignmentEpoch: 2 });
    await echoes(paired.stream);
    paired.stream.close();
  });

  test('a director that says nothing newer is not believed', async () => {
    const invite = await host.invite('device-4');
    const odd = { ...invite, cellUrl: old.origin, assignmentEpoch: 2 };
    const ports = { openSocket: fromElsewhere() };
    await expect(pairWithInvite(odd, { ports })).rejects.toMatchObject({ failure: 'moved' });
  });

  test('a phone with a stale cell and directors that are away tries again, with what it knows', async () => {
    const elsewhere = recordingPorts();
    const phone = createPhone(
      {
        directorOrigins: ['http://127.0.0.1:9'],
        relayHostId: host.names.relayHostId,
        endpoint: { cellUrl: old.origin, assignmentEpoch: 1 },
        resumeTokens: [token],
      },
      elsewhere.ports,
    );
    const retry = phone.next('retry');
    phone.start();
    expect((await retry).reason).toContain('4409');
    expect(elsewhere.sockets).toHaveLength(2);
    phone.stop();
  });
});

test('a session that the cell has forgotten is begun anew, and the phone comes back', async () => {
  fleet.clock.jump(6_000);
  const release = recorded.holdPosts();
  const posts = recorded.posts();
  recorded.sockets
    .filter(({ url }) => url.endsWith('/v1/host/control'))
    .at(-1)
    ?.terminate();
  const back = connected.next('connected');
  const online = host.next('online');
  await until('an ask', recorded.posts, (asked) => asked > posts);
  const cell = fleet.cellAt(connected.endpoint.cellUrl);
  // Thirty seconds without a control: the cell lets go of the phones and of the secret.
  const before = await fleet.units(cell);
  await until(
    'an orphan that ended',
    async () => {
      fleet.clock.jump(10_500);
      return fleet.units(cell);
    },
    (units) => units < before,
  );
  release();
  expect(await online).toMatchObject({ cellUrl: cell.origin, rebound: false });
  const hellos = recorded.sockets.flatMap(({ sent }) => sent.filter((text) => text.includes('"host-hello"')));
  expect(hellos.slice(-2).map((hello) => hello.includes('controlResumeSecret'))).toEqual([true, false]);
  await echoes((await back).stream);
});

import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { WebSocket } from 'ws';
import * as browser from '../../client/browser.ts';
import {
  createHost,
  createPhone,
  type MessageStream,
  newHostKeys,
  newResumeToken,
  type PairedConnection,
  type PhoneConnection,
  type PhoneOptions,
  type Ports,
  pairWithInvite,
  type RelayHost,
  type RelayInvite,
  type RelayPhone,
  selfHostedTokens,
} from '../../client/index.ts';
import { Fleet } from '../acceptance/support/fleet.ts';
import { newId } from '../acceptance/support/identity.ts';
import { until } from '../acceptance/support/wait.ts';
import { type EchoHost, echoHost } from './support/echo-host.ts';
import { fromElsewhere, recordingPorts } from './support/recording-ports.ts';

let fleet: Fleet;
const hosts: RelayHost[] = [];
const phones: RelayPhone[] = [];

beforeAll(async () => {
  fleet = await Fleet.start({ cells: [{}, {}], directors: 2 });
});
afterEach(() => {
  for (const phone of phones.splice(0)) phone.stop();
  for (const host of hosts.splice(0)) host.stop();
});
afterAll(() => fleet.stop());

async function startHost(ports: Partial<Ports> = {}): Promise<EchoHost> {
  const started = await echoHost(fleet, ports);
  hosts.push(started.host);
  return started;
}

async function ask(stream: MessageStream, text: string): Promise<Record<string, unknown>> {
  await stream.send(text);
  return JSON.parse(String(await stream.receive())) as Record<string, unknown>;
}

function pairFromElsewhere(invite: RelayInvite): Promise<PairedConnection> {
  return pairWithInvite(invite, { ports: { openSocket: fromElsewhere() } });
}

/** Pairs a device and gives it a resume credential through the spliced connection, as an app would. */
async function paired({ host }: EchoHost, relayDeviceId = newId('device')) {
  const connection = await pairFromElsewhere(await host.invite(relayDeviceId));
  const { token, hash } = newResumeToken();
  const installed = await ask(connection.stream, `provision ${hash}`);
  return { connection, token, installed, relayDeviceId };
}

function startPhone(
  { host }: EchoHost,
  pairing: { connection: PairedConnection; token: string },
  options: Partial<PhoneOptions> = {},
  ports: Partial<Ports> = {},
): RelayPhone {
  const phone = createPhone(
    {
      directorOrigins: fleet.directors.map((director) => director.origin),
      relayHostId: host.names.relayHostId,
      endpoint: pairing.connection.endpoint,
      resumeTokens: [pairing.token],
      ...options,
    },
    { openSocket: fromElsewhere(), ...ports },
  );
  phones.push(phone);
  phone.start();
  return phone;
}

async function echoes(stream: MessageStream): Promise<void> {
  const text = newId('text');
  await stream.send(text);
  expect(await stream.receive()).toBe(text);
}

describe('pairing and resuming', () => {
  test('a phone pairs by invite, is provisioned through the splice, resumes, and has its resume confirmed', async () => {
    const host = await startHost();
    const pairing = await paired(host);
    expect(pairing.connection.hello.credentialKind).toBe('invite');
    expect(pairing.installed).toMatchObject({ authorizationMode: 'relay-basis', currentVersion: 1 });
    expect(host.connections[0]).toMatchObject({ kind: 'invite', relayDeviceId: pairing.relayDeviceId });
    pairing.connection.stream.close();

    let confirmed: Record<string, unknown> = {};
    const phone = startPhone(host, pairing, {
      async confirm({ stream }) {
        confirmed = await ask(stream, 'confirm');
      },
    });
    const { hello, stream } = await phone.next('connected');
    expect(hello).toMatchObject({ credentialKind: 'resume', acceptedAs: 'current', acceptedCredentialVersion: 1 });
    expect(confirmed).toMatchObject({ renewed: true, acceptedAs: 'current', currentVersion: 1 });
    await echoes(stream);
    await stream.send(Uint8Array.of(1, 2, 3));
    expect([...((await stream.receive()) as Uint8Array)]).toEqual([1, 2, 3]);
  });

  test('an invite is good for one pairing', async () => {
    const host = await startHost();
    const invite = await host.host.invite('device-once');
    const { hash } = newResumeToken();
    const first = await pairFromElsewhere(invite);
    await ask(first.stream, `provision ${hash}`);
    await expect(pairFromElsewhere(invite)).rejects.toMatchObject({ name: 'PairingError' });
  });

  test('a new phone with a token nobody installed is told to pair again', async () => {
    const host = await startHost();
    const pairing = await paired(host);
    const phone = startPhone(host, { ...pairing, token: newResumeToken().token });
    const connected = phone.next('connected');
    phone.on('credential-rejected', () => {
      expect(phone.state).toBe('rejected');
      phone.useTokens([pairing.token]);
    });
    await echoes((await connected).stream);
  });

  test('after a rotation the token before it is still taken, as grace', async () => {
    const host = await startHost();
    const first = await paired(host);
    const second = await paired(host, first.relayDeviceId);
    expect(second.installed).toMatchObject({ currentVersion: 2 });
    const lost = newResumeToken().token;
    const phone = startPhone(host, first, { resumeTokens: [lost, first.token] });
    expect((await phone.next('connected')).hello).toMatchObject({ acceptedAs: 'grace' });
  });

  test('a revoked device is turned away', async () => {
    const host = await startHost();
    const pairing = await paired(host);
    await host.host.commands.revokeDevice(pairing.relayDeviceId);
    const phone = startPhone(host, pairing);
    await phone.next('credential-rejected');
  });

  test('what became of an install can be asked, and a repeated one answers the same', async () => {
    const { host, connections } = await startHost();
    const connection = await pairFromElsewhere(await host.invite('device-status'));
    await connection.stream.send('hello');
    await connection.stream.receive();
    const authorization = { mode: 'relay-basis', basisConnId: connections[0]?.connId ?? '' } as const;
    const install = {
      relayDeviceId: 'device-status',
      newResumeTokenHash: newResumeToken().hash,
      authorization,
      reqId: 'install-1',
    };
    expect(await host.commands.installStatus('device-status', 'install-1')).toMatchObject({ state: 'not-found' });
    const installed = await host.commands.installCredential(install);
    expect(await host.commands.installCredential(install)).toEqual(installed);
    expect(await host.commands.installStatus('device-status', 'install-1')).toMatchObject({
      state: 'committed',
      result: installed,
    });
    await expect(host.commands.confirmResume('no-such-connection')).rejects.toMatchObject({
      name: 'ControlRequestError',
      code: 'confirmation_not_active',
    });
  });
});

describe('broken connections', () => {
  test('a phone whose socket dies comes back by itself', async () => {
    const host = await startHost();
    const phone = startPhone(host, await paired(host));
    const first = await phone.next('connected');
    const lost = phone.next('disconnected');
    const again = phone.next('connected');
    first.stream.terminate();
    expect((await lost).code).toBe(1006);
    await echoes((await again).stream);
  });

  test('a connection that the host ends shows as dropped, and the phone comes back', async () => {
    const host = await startHost();
    const phone = startPhone(host, await paired(host));
    const first = await phone.next('connected');
    const lost = phone.next('disconnected');
    const again = phone.next('connected');
    await first.stream.send('bye');
    expect((await lost).code).toBe(4408);
    await echoes((await again).stream);
  });

  test('a control that dies is rebound: same generation, the phone stays connected', async () => {
    const recorded = recordingPorts();
    const host = await startHost(recorded.ports);
    const phone = startPhone(host, await paired(host));
    const { stream } = await phone.next('connected');
    await echoes(stream);
    const online = host.host.next('online');
    recorded.sockets
      .filter(({ url }) => url.endsWith('/v1/host/control'))
      .at(-1)
      ?.terminate();
    // Both sides keep to one ask in five seconds.
    fleet.clock.jump(6_000);
    recorded.fireTimers((ms) => ms > 3_000 && ms <= 5_500);
    expect(await online).toMatchObject({ generation: 1, rebound: true });
    await echoes(stream);
    expect(stream.end).toBeNull();
  });

  test('a control lease is renewed by a rebind on the same cell, without a director', async () => {
    const recorded = recordingPorts();
    const host = await startHost(recorded.ports);
    const phone = startPhone(host, await paired(host));
    const { stream } = await phone.next('connected');
    const posts = recorded.posts();
    const online = host.host.next('online');
    recorded.fireTimers((ms) => ms > 3_600_000);
    expect(await online).toMatchObject({ generation: 1, rebound: true });
    expect(recorded.posts()).toBe(posts);
    await echoes(stream);
  });

  test('a token is refreshed before its end, on the living control', async () => {
    const recorded = recordingPorts();
    const host = await startHost(recorded.ports);
    const control = recorded.sockets.find(({ url }) => url.endsWith('/v1/host/control'));
    recorded.fireTimers((ms) => ms > 100_000 && ms < 400_000);
    const frame = await until(
      'an auth-refresh',
      () => control?.sent.find((text) => text.includes('auth-refresh')),
      (sent) => sent !== undefined,
    );
    expect(JSON.parse(frame ?? '')).toMatchObject({ type: 'auth-refresh' });
    // Whatever the cell thought of it, it still does what it is asked.
    await host.host.invite('device-after-refresh');
    expect(host.host.state).toBe('online');
  });

  test('a phone of a host that signed out is told so, and finds it again later', async () => {
    const host = await startHost();
    const pairing = await paired(host);
    await host.host.signOut();
    expect(host.host.state).toBe('stopped');
    const recorded = recordingPorts();
    const phone = startPhone(host, pairing, {}, recorded.ports);
    expect(await phone.next('host-offline')).toEqual({ signedOut: true });
    fleet.clock.jump(6_000);
    const retry = recorded.armed((ms) => ms >= 5_000 && ms <= 15_000);
    expect(retry).toHaveLength(1);
    const back = await echoHost(fleet, {}, host.identity);
    hosts.push(back.host);
    const connected = phone.next('connected');
    phone.start();
    await echoes((await connected).stream);
  });
});

test('who waits for a host to come online is told why it does not', async () => {
  const keys = newHostKeys();
  const host = createHost({
    directorOrigins: ['http://127.0.0.1:9'],
    keys,
    tokens: selfHostedTokens({ relayOrigin: 'http://127.0.0.1:9', selfHostedKey: 'k'.repeat(40) }),
    appVersion: 'test',
    onConnection() {},
  });
  hosts.push(host);
  host.start();
  await expect(host.online(AbortSignal.timeout(150))).rejects.toThrow(/^the host is waiting: no relay token: .+/);
});

test('a connection that is not confirmed is ended and tried again', async () => {
  const host = await startHost();
  let tries = 0;
  const phone = startPhone(host, await paired(host), {
    async confirm({ stream }: PhoneConnection) {
      tries += 1;
      if (tries === 1) throw new Error('handshake failed');
      await ask(stream, 'confirm');
    },
  });
  const retry = phone.next('retry');
  const connected = phone.next('connected');
  expect((await retry).reason).toContain('handshake failed');
  await echoes((await connected).stream);
  expect(tries).toBe(2);
});

test('eight phones that come at once are all served, a ninth when one of them leaves, and none is left behind', async () => {
  const host = await startHost();
  const pairing = await paired(host);
  pairing.connection.stream.close();
  await until(
    'the pairing connection ended',
    () => host.connections[0]?.stream.end,
    (end) => end !== null,
  );
  const eight = Array.from({ length: 8 }, () => startPhone(host, pairing));
  const connections = await Promise.all(eight.map((phone) => phone.next('connected')));
  await Promise.all(connections.map(({ stream }) => echoes(stream)));

  const recorded = recordingPorts();
  const ninth = startPhone(host, pairing, {}, recorded.ports);
  expect((await ninth.next('retry')).reason).toContain('4429');
  const connected = ninth.next('connected');
  eight[0]?.stop();
  await until(
    'one has left',
    () => host.connections.filter(({ stream }) => stream.end === null).length,
    (live) => live === 7,
  );
  ninth.start();
  await echoes((await connected).stream);

  for (const phone of [...eight, ninth]) phone.stop();
  await until(
    'all have left',
    () => host.connections.filter(({ stream }) => stream.end === null).length,
    (live) => live === 0,
  );
});

test('the phone for browsers does the same over the global WebSocket', async () => {
  const host = await startHost();
  vi.stubGlobal('WebSocket', WebSocket);
  try {
    const { stream, endpoint } = await browser.pairWithInvite(await host.host.invite('device-browser'));
    const { token, hash } = browser.newResumeToken();
    expect(await ask(stream, `provision ${hash}`)).toMatchObject({ currentVersion: 1 });
    stream.close();
    expect((await stream.closed).code).toBe(1000);
    const phone = browser.createPhone({
      directorOrigins: [fleet.director.origin],
      relayHostId: host.host.names.relayHostId,
      endpoint,
      resumeTokens: [token],
    });
    phones.push(phone);
    const first = phone.next('connected');
    phone.start();
    const connection = await first;
    const file = randomBytes(3 * 1_048_576);
    const sending = connection.stream.send(file);
    expect(Buffer.from((await connection.stream.receive()) as Uint8Array).equals(file)).toBe(true);
    await sending;
    const again = phone.next('connected');
    connection.stream.terminate();
    await echoes((await again).stream);
  } finally {
    vi.unstubAllGlobals();
  }
});

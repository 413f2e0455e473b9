import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { WebSocket } from 'ws';
import { newToken } from '../../contract/credentials.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { RunningProcess } from '../../server/run.ts';
import { JumpClock } from '../acceptance/support/jump-clock.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import {
  installedToken,
  type KnownCell,
  knownCell,
  madeInvite,
  newHostId,
  post,
  startDirector,
} from '../support/director.ts';
import { eventually } from '../support/eventually.ts';
import { type KeyServer, startKeyServer } from '../support/key-server.ts';
import { startProxy, type TcpProxy } from '../support/proxy.ts';

let database: FreshDatabase;
let keys: KeyServer;
let proxy: TcpProxy;
let director: RunningProcess;
let home: KnownCell;
let host: string;
let source = 0;
const clock = new JumpClock();

beforeAll(async () => {
  [database, keys] = await Promise.all([freshDatabase(), startKeyServer()]);
  proxy = await startProxy(database.url);
  home = await knownCell(database, 'us-1');
  director = await startDirector(database, { keys, clock, through: proxy.through });
});
afterAll(async () => {
  await director?.stop();
  await proxy?.stop();
  await keys?.stop();
  await database?.drop();
});
beforeEach(async () => {
  host = newHostId();
  source += 1;
  await home.beat();
});
const open = new Set<WebSocket>();
afterEach(() => {
  for (const socket of open) socket.terminate();
  open.clear();
});

interface Phone {
  socket: WebSocket;
  frames: string[];
  closed: Promise<{ code: number; reason: string }>;
}

const forwarded = (address = `10.0.${source}.1`) => ({ 'x-forwarded-for': `${address}, 10.255.0.1` });

function dial(path = `/v1/connect/${host}`, headers: Record<string, string> = forwarded()): Promise<Phone> {
  const socket = new WebSocket(director.origin.replace('http', 'ws') + path, { headers });
  open.add(socket);
  const frames: string[] = [];
  socket.on('message', (data) => frames.push(String(data)));
  const closed = new Promise<{ code: number; reason: string }>((resolve) =>
    socket.on('close', (code, reason) => resolve({ code, reason: String(reason) })),
  );
  return new Promise((resolve, reject) => {
    socket.on('open', () => resolve({ socket, frames, closed }));
    socket.on('unexpected-response', (_, response) => reject(new Error(String(response.statusCode))));
    socket.on('error', reject);
  });
}

async function knock(credential: string): Promise<Phone> {
  const phone = await dial();
  phone.socket.send(JSON.stringify({ type: 'relay-auth', v: 1, mode: 'connect', credential }));
  return phone;
}

async function assigned(): Promise<void> {
  await post(`${director.origin}/v1/assign`, { v: 1, relayHostId: host }, { token: await keys.relayToken(host) });
}

describe('/v1/connect on a director (wire 1.5)', () => {
  test('S20: an invite is moved to its cell, and nothing is reserved', async () => {
    await assigned();
    const phone = await knock(await madeInvite(database, home, host));
    expect(await phone.closed).toEqual({ code: 4503, reason: 'connect to assigned cell' });
    expect(phone.frames.map((frame) => JSON.parse(frame))).toEqual([
      { type: 'relay-moved', v: 1, cellUrl: home.url, assignmentEpoch: 1 },
    ]);
    const [invite] = await database.query('select attempts, reserved_by from relay.invite where relay_host_id = $1', [
      host,
    ]);
    expect(invite).toEqual({ attempts: 0, reserved_by: null });
  });

  test('an unassigned host is assigned first', async () => {
    const phone = await knock(await madeInvite(database, home, host));
    expect(await phone.closed).toMatchObject({ code: 4503 });
    expect(JSON.parse(phone.frames[0] ?? '')).toMatchObject({ type: 'relay-moved', assignmentEpoch: 1 });
    expect(
      await database.query('select cell_id, epoch from relay.assignment where relay_host_id = $1', [host]),
    ).toEqual([{ cell_id: 'us-1', epoch: 1 }]);
  });

  test('anything but a valid invite: hello 4401, closed 4401 `invalid invite`', async () => {
    await assigned();
    const invite = await madeInvite(database, home, host);
    await database.query(
      "update relay.invite set expires_at = relay.now() - interval '1 s', created_at = relay.now() - interval '1 h' where relay_host_id = $1",
      [host],
    );
    for (const credential of [newToken(), invite, await installedToken(database, host)]) {
      const phone = await knock(credential);
      expect(await phone.closed).toEqual({ code: 4401, reason: 'invalid invite' });
      expect(phone.frames.map((frame) => JSON.parse(frame))).toEqual([{ type: 'relay-hello', ok: false, code: 4401 }]);
    }
  });

  test('a home that is silent: 4429, which a phone retries', async () => {
    await assigned();
    const invite = await madeInvite(database, home, host);
    await home.beat(false);
    const phone = await knock(invite);
    expect(await phone.closed).toEqual({ code: 4429, reason: 'relay temporarily unavailable' });
    expect(phone.frames.map((frame) => JSON.parse(frame))).toEqual([{ type: 'relay-hello', ok: false, code: 4429 }]);
  });

  test.each([
    ['no JSON', 'hello'],
    ['another type', JSON.stringify({ type: 'host-hello' })],
    ['an unknown key', JSON.stringify({ type: 'relay-auth', v: 1, mode: 'connect', credential: newToken(), x: 1 })],
    ['no credential', JSON.stringify({ type: 'relay-auth', v: 1, mode: 'connect' })],
    ['another mode', JSON.stringify({ type: 'relay-auth', v: 1, mode: 'peek', credential: newToken() })],
    ['a megabyte', 'x'.repeat(1_048_576)],
  ])('a first frame of %s: hello 4401, closed 4401 `invalid relay auth`', async (_, text) => {
    const phone = await dial();
    phone.socket.send(text);
    expect(await phone.closed).toEqual({ code: 4401, reason: 'invalid relay auth' });
    expect(phone.frames.map((frame) => JSON.parse(frame))).toEqual([{ type: 'relay-hello', ok: false, code: 4401 }]);
  });

  test('a binary first frame: closed 4401, no hello', async () => {
    const phone = await dial();
    phone.socket.send(Buffer.from('{}'));
    expect(await phone.closed).toEqual({ code: 4401, reason: 'first frame must be text' });
    expect(phone.frames).toEqual([]);
  });

  test('no first frame within 2 s: closed 4401, no hello', async () => {
    const phone = await dial();
    clock.jump(LIMITS.firstFrameDeadlineMs);
    expect(await phone.closed).toEqual({ code: 4401, reason: 'first frame timeout' });
    expect(phone.frames).toEqual([]);
  });

  test('8 MiB and a byte: gone, and the director lives', async () => {
    const phone = await dial();
    phone.socket.send('x'.repeat(8_388_609));
    expect((await phone.closed).code).toBe(1006);
    expect((await fetch(`${director.origin}/health`)).status).toBe(200);
  });
});

describe('upgrades (wire 1.3)', () => {
  test('a query string: 400', async () => {
    await expect(dial(`/v1/connect/${host}?credential=x`)).rejects.toThrow('400');
  });

  test.each(['/v1/connect/short', '/v1/connect/%E0%A4%A', '/v1/connect/', `/v1/connect/${'a'.repeat(2_000)}`])(
    '%s: 429 or 404, never a crash',
    async (path) => {
      await expect(dial(path)).rejects.toThrow(/^(429|404)$/);
    },
  );

  test('the host’s paths: 404', async () => {
    for (const path of ['/v1/host/control', '/v1/host/data/abc']) await expect(dial(path)).rejects.toThrow('404');
  });

  test('four silent phones of a source, the fifth 429, another source is let in (S3)', async () => {
    const phones = await Promise.all(Array.from({ length: 4 }, () => dial()));
    await expect(dial()).rejects.toThrow('429');
    await dial(undefined, forwarded(`10.1.${source}.1`));
    phones[0]?.socket.close();
    await phones[0]?.closed;
    await dial();
  });

  test('four phones of a source that wait for a slow database keep no fifth out', async () => {
    await assigned();
    const invite = await madeInvite(database, home, host);
    proxy.mute();
    const waiting = await Promise.all(Array.from({ length: 4 }, () => knock(invite)));
    await eventually(() => dial());
    expect(waiting.map(({ frames }) => frames)).toEqual([[], [], [], []]);
    proxy.open();
    proxy.cut();
  });

  test('thirty-one attempts a minute: the last is 429, whatever the client put before (S3)', async () => {
    for (let i = 0; i < 30; i += 1) {
      const phone = await dial(undefined, { 'x-forwarded-for': `1.2.3.${i}, 10.0.${source}.1, 10.255.0.1` });
      phone.socket.close();
      await phone.closed;
    }
    await expect(dial()).rejects.toThrow('429');
  });
});

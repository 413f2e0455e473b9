import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { HostControl } from '../../client/host-control.ts';
import { type HostKeys, type HostNames, hostNames, newHostKeys } from '../../client/host-keys.ts';
import { readClaims } from '../../client/host-token.ts';
import { completePorts } from '../../client/ports.ts';
import type { SocketEnd } from '../../client/socket.ts';
import { openNodeSocket } from '../../client/socket-node.ts';
import type { CellFrameOf } from '../../contract/control.ts';
import { hostDataFrames, phoneFrames } from '../../contract/phone.ts';
import { clientFrame } from './frames.ts';
import { openRaw } from './raw-socket.ts';
import type { RealRelay } from './real-relay.ts';
import type { RawPair } from './splice-servers.ts';

type ConnOpen = CellFrameOf<'conn-open'>;

/** All that a host needs before it dials its cell. */
export interface Placed {
  keys: HostKeys;
  names: HostNames;
  relayToken: string;
  grant: { cellUrl: string; assignmentEpoch: number; lease: string };
}

export interface SeatedHost {
  placed: Placed;
  control: HostControl;
  generation: number;
  nextConnection(): Promise<ConnOpen>;
}

const ports = completePorts(openNodeSocket);
let sources = 0;

/** Another address for each connection: what strangers may do is counted by source. */
function newSource(): Record<string, string> {
  sources++;
  return { 'X-Forwarded-For': `10.${(sources >> 16) & 255}.${(sources >> 8) & 255}.${sources & 255}, 10.255.255.255` };
}

async function post<T>(url: string, bearer: string, body: unknown): Promise<T> {
  for (;;) {
    const reply = await fetch(url, {
      method: 'POST',
      headers: { authorization: `Bearer ${bearer}`, 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
    const answer = await reply.json();
    if (reply.ok) return answer as T;
    if (reply.status !== 503) throw new Error(`${url} answered ${reply.status} ${JSON.stringify(answer)}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

export async function placeHost(relay: Pick<RealRelay, 'origin' | 'selfHostedKey'>): Promise<Placed> {
  const keys = newHostKeys();
  const names = hostNames(keys);
  const { relayToken } = await post<{ relayToken: string }>(
    `${relay.origin}/v1/host-token`,
    relay.selfHostedKey,
    names,
  );
  const ask = { v: 1, relayHostId: names.relayHostId };
  const grant = await post<Placed['grant']>(`${relay.origin}/v1/assign`, relayToken, ask);
  return { keys, names, relayToken, grant };
}

/** A busy cell's 503 is waited out, as a host does; rejects with any other end. */
export async function seatHost(placed: Placed): Promise<SeatedHost> {
  for (;;) {
    try {
      return await dialControl(placed);
    } catch (error) {
      if (!(error instanceof ControlEnded) || error.end.status !== 503) throw error;
      await new Promise((resolve) => setTimeout(resolve, error.end.retryAfterMs ?? 1_000));
    }
  }
}

class ControlEnded extends Error {
  readonly end: SocketEnd;
  constructor(end: SocketEnd) {
    super(`control ended: ${JSON.stringify(end)}`);
    this.end = end;
  }
}

function dialControl(placed: Placed): Promise<SeatedHost> {
  const { keys, names, relayToken, grant } = placed;
  const opened: ConnOpen[] = [];
  const waiting: ((open: ConnOpen) => void)[] = [];
  return new Promise((resolve, reject) => {
    const identity = { keys, ...names, appVersion: 'bench', relayToken, claims: readClaims(relayToken) };
    const control = new HostControl(ports, identity, grant, undefined, {
      ready: ({ generation }) =>
        resolve({
          placed,
          control,
          generation,
          nextConnection: () =>
            new Promise((take) => {
              const open = opened.shift();
              if (open) take(open);
              else waiting.push(take);
            }),
        }),
      connOpen(open) {
        const take = waiting.shift();
        if (take) take(open);
        else opened.push(open);
      },
      drain: () => {},
      warning: (text) => console.error(text),
      ended: (end) => reject(new ControlEnded(end)),
    });
  });
}

/** A phone paired by invite: its bare socket and that of its host, joined by the cell. */
export async function openCellPair(relay: RealRelay, host: SeatedHost): Promise<RawPair> {
  const invite = { reqId: randomUUID(), relayDeviceId: randomUUID() };
  const { inviteToken } = await host.control.request('invite-create', invite);
  const { relayHostId } = host.placed.names;
  const client = await openRaw(relay.port, `/v1/connect/${relayHostId}`, newSource());
  const hello = readFrame(client);
  client.write(textFrame(phoneFrames.write('relay-auth', { v: 1, mode: 'connect', credential: inviteToken })));
  const { connId, connTicket } = await Promise.race([
    host.nextConnection(),
    hello.then((text) => Promise.reject(new Error(`phone refused: ${text}`))),
  ]);
  const data = await openRaw(relay.port, `/v1/host/data/${encodeURIComponent(connId)}`, newSource());
  data.write(textFrame(hostDataFrames.write('host-data-auth', { v: 1, connTicket, generation: host.generation })));
  const { ok } = JSON.parse(await hello) as { ok: boolean };
  if (!ok) throw new Error('phone refused');
  return { client, host: data };
}

const textFrame = (text: string) => clientFrame(Buffer.from(text), 1);

/** The payload of the one frame that the relay sends unasked. */
function readFrame(socket: Socket): Promise<string> {
  return new Promise((resolve, reject) => {
    let held = Buffer.alloc(0);
    const onData = (data: Buffer) => {
      held = Buffer.concat([held, data]);
      const short = (held[1] ?? 0) < 126;
      const start = short ? 2 : 4;
      if (held.length < start) return;
      const length = short ? held[1]! : held.readUInt16BE(2);
      if (held.length < start + length) return;
      socket.off('data', onData);
      socket.off('close', onClose);
      resolve(held.toString('utf8', start, start + length));
    };
    const onClose = () => reject(new Error('closed before its first frame'));
    socket.on('data', onData);
    socket.on('close', onClose);
  });
}

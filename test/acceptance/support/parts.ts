/** The moves that most tests start with. */
import type { HostIdentity } from './identity.ts';
import { hashOf, newId, newToken } from './identity.ts';
import type { Peer } from './peer.ts';
import type { ConnOpen, RawHost } from './raw-host.ts';
import { type Hello, RawPhone } from './raw-phone.ts';

export interface Pair {
  phone: RawPhone;
  data: Peer;
  open: ConnOpen;
  hello: Hello;
}

/** A phone that knocks with a credential, and its host's answer: both ends of a splice. */
export async function connectPair(host: RawHost, credential: string): Promise<Pair> {
  const phone = await RawPhone.knock(host.origin, host.identity.relayHostId, credential);
  const refused = phone.peer.closed.then(({ code, reason }) => {
    throw new Error(`the phone was refused: ${code} ${reason}`);
  });
  refused.catch(() => {});
  const open = await Promise.race([host.connOpen(), refused]);
  const data = await host.attach(open);
  const hello = await phone.hello();
  if (!hello.ok) throw new Error(`pairing refused with ${hello.code}`);
  return { phone, data, open, hello };
}

export async function connectInvite(host: RawHost, relayDeviceId = newId('device')): Promise<Pair> {
  const { inviteToken } = await host.createInvite(relayDeviceId);
  return connectPair(host, inviteToken);
}

export interface Installed {
  relayDeviceId: string;
  resumeToken: string;
  version: number;
  resumeExpiresAt: number;
}

/** Pairs a phone by invite, installs a resume token through the connection, and hangs up. */
export async function installDevice(host: RawHost, relayDeviceId = newId('device')): Promise<Installed> {
  const pair = await connectInvite(host, relayDeviceId);
  const resumeToken = newToken();
  const reply = await host.request({
    type: 'device-credential-install',
    v: 1,
    reqId: newId('install'),
    relayDeviceId,
    newResumeTokenHash: hashOf(resumeToken),
    authorization: { mode: 'relay-basis', basisConnId: pair.open.connId },
  });
  if (reply.type !== 'device-credential-installed') throw new Error(`install answered ${JSON.stringify(reply)}`);
  pair.phone.peer.hangUp();
  await pair.data.closed;
  return {
    relayDeviceId,
    resumeToken,
    version: Number(reply.currentVersion),
    resumeExpiresAt: Number(reply.resumeExpiresAt),
  };
}

/** Installs a resume token without a phone connection, as a desktop that reached the phone directly does. */
export function installDirect(
  host: RawHost,
  relayDeviceId: string,
  resumeToken: string,
  extra: Record<string, unknown> = {},
) {
  return host.request({
    type: 'device-credential-install',
    v: 1,
    reqId: newId('install'),
    relayDeviceId,
    newResumeTokenHash: hashOf(resumeToken),
    authorization: { mode: 'authenticated-direct', directAuthId: newId('direct') },
    ...extra,
  });
}

export interface Granted {
  status: number;
  headers: Headers;
  body: Record<string, unknown>;
}

export async function post(
  origin: string,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Granted> {
  const response = await fetch(`${origin}${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: typeof body === 'string' ? body : JSON.stringify(body),
    signal: AbortSignal.timeout(40_000),
  });
  const text = await response.text();
  return { status: response.status, headers: response.headers, body: text === '' ? {} : JSON.parse(text) };
}

export function askAssign(
  origin: string,
  token: string,
  identity: HostIdentity,
  extra: Record<string, unknown> = {},
): Promise<Granted> {
  const body = { v: 1, relayHostId: identity.relayHostId, ...extra };
  return post(origin, '/v1/assign', body, { authorization: `Bearer ${token}` });
}

export interface Grant {
  cellUrl: string;
  assignmentEpoch: number;
  lease: string;
}

/** Asks until granted; a `busy` or a full lane is waited out as its Retry-After says, shortened. */
export async function assign(
  origin: string,
  token: string,
  identity: HostIdentity,
  extra: Record<string, unknown> = {},
): Promise<Grant> {
  let last: Granted | null = null;
  for (let attempt = 0; attempt < 300; attempt += 1) {
    last = await askAssign(origin, token, identity, { reconnect: true, ...extra });
    if (last.status === 200) return last.body as unknown as Grant;
    if (last.status !== 503 || last.headers.get('retry-after') === null) break;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  throw new Error(`assign answered ${last?.status} ${JSON.stringify(last?.body)}`);
}

export function askResolve(origin: string, relayHostId: string, resumeToken: string): Promise<Granted> {
  return post(origin, '/v1/resolve', { v: 1, relayHostId, resumeToken });
}

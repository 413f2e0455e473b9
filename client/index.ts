/** The reference clients for Node: a host and a phone. `docs/client.md` shows how they are used. */
import { hashToken, newToken } from '../contract/credentials.ts';
import { type HostOptions, RelayHost } from './host.ts';
import type { RelayInvite } from './invite.ts';
import { type PairedConnection, pair } from './pair.ts';
import { type PhoneOptions, RelayPhone } from './phone.ts';
import { completePorts, type Ports } from './ports.ts';
import { openNodeSocket } from './socket-node.ts';

export { ControlRequestError } from './control-requests.ts';
export type { HostEvents, HostOptions, RelayHost } from './host.ts';
export type {
  ConfirmedResume,
  CreatedInvite,
  HostCommands,
  InstallAuthorization,
  InstallCredential,
  InstalledCredential,
  InstallStatus,
} from './host-commands.ts';
export type { HostConnection } from './host-data.ts';
export { type HostKeys, hostKeysFromSecret, newHostKeys } from './host-keys.ts';
export type { HostState } from './host-machine.ts';
export { type RelayToken, RelayTokenError, type RelayTokenSource, selfHostedTokens } from './host-token.ts';
export { type RelayInvite, readInvite } from './invite.ts';
export { type PairedConnection, PairingError, type PairingFailure } from './pair.ts';
export type { PhoneConnection, PhoneEndpoint, PhoneEvents, PhoneOptions, RelayPhone } from './phone.ts';
export type { PhoneState } from './phone-machine.ts';
export type { Ports } from './ports.ts';
export type { Message, SocketEnd } from './socket.ts';
export { type MessageStream, StreamError } from './stream.ts';

/** A host; `start()` takes it online. */
export function createHost(options: HostOptions, ports?: Partial<Ports>): RelayHost {
  return new RelayHost(options, completePorts(openNodeSocket, ports));
}

/** A phone that was paired before; `start()` connects it. */
export function createPhone(options: PhoneOptions, ports?: Partial<Ports>): RelayPhone {
  return new RelayPhone(options, completePorts(openNodeSocket, ports));
}

/**
 * Connects once with an invite, to pair.
 * @throws PairingError
 */
export function pairWithInvite(
  invite: RelayInvite,
  options: { signal?: AbortSignal; ports?: Partial<Ports> } = {},
): Promise<PairedConnection> {
  const signal = options.signal ?? new AbortController().signal;
  return pair(completePorts(openNodeSocket, options.ports), invite, signal);
}

/** A new resume token and the hash that is installed for it: the token itself stays on the phone. */
export function newResumeToken(): { token: string; hash: string } {
  const token = newToken();
  return { token, hash: hashToken(token) };
}

/**
 * The reference phone for browsers: the same as in Node, over the browser's own WebSocket, which cannot pause reading
 * (32 MiB of unread messages close a connection) and has no pings (a silent path shows only in the app's own traffic).
 */
import { hashToken, newToken } from '../contract/credentials.ts';
import type { RelayInvite } from './invite.ts';
import { type PairedConnection, pair } from './pair.ts';
import { type PhoneOptions, RelayPhone } from './phone.ts';
import { completePorts, type Ports } from './ports.ts';
import { openBrowserSocket } from './socket-browser.ts';

export { type RelayInvite, readInvite } from './invite.ts';
export { type PairedConnection, PairingError, type PairingFailure } from './pair.ts';
export type { PhoneConnection, PhoneEndpoint, PhoneEvents, PhoneOptions, RelayPhone } from './phone.ts';
export type { PhoneState } from './phone-machine.ts';
export type { Ports } from './ports.ts';
export type { Message, SocketEnd } from './socket.ts';
export { type MessageStream, StreamError } from './stream.ts';

/** A phone that was paired before; `start()` connects it. */
export function createPhone(options: PhoneOptions, ports?: Partial<Ports>): RelayPhone {
  return new RelayPhone(options, completePorts(openBrowserSocket, ports));
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
  return pair(completePorts(openBrowserSocket, options.ports), invite, signal);
}

/** A new resume token and the hash that is installed for it: the token itself stays on the phone. */
export function newResumeToken(): { token: string; hash: string } {
  const token = newToken();
  return { token, hash: hashToken(token) };
}

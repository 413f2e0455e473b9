import type { HostCloseReason } from '../../contract/index.ts';
import type { Connection } from './connection.ts';
import type { ControlSession } from './control-session.ts';

/** A host: the same key may serve two accounts, so the id alone does not name one. */
export interface HostName {
  userId: string;
  relayHostId: string;
}

export function hostKey(host: HostName): string {
  return `${host.userId}\0${host.relayHostId}`;
}

/** How many hosts that are no longer here are remembered, for their next generation and their last words. */
const REMEMBERED_HOSTS = 50_000;

/** Keeps the newest entries; forgetting one costs a host at most a generation that starts at 1 again. */
class Memory<V> {
  readonly #entries = new Map<string, V>();

  get(key: string): V | undefined {
    return this.#entries.get(key);
  }

  set(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size > REMEMBERED_HOSTS) {
      const oldest = this.#entries.keys().next().value;
      if (oldest !== undefined) this.#entries.delete(oldest);
    }
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }
}

/** Who is seated on this cell, and which phone connections hang on whom. */
export class Seats {
  readonly #byHost = new Map<string, ControlSession>();
  /** One key serves one account but in rare cases: an array of one is a fifth of a set. */
  readonly #byRelayHostId = new Map<string, readonly ControlSession[]>();
  readonly #connections = new Map<string, Connection>();
  readonly #generations = new Memory<number>();
  readonly #closeReasons = new Memory<HostCloseReason>();
  readonly #leftAt = new Memory<number>();

  get size(): number {
    return this.#byHost.size;
  }

  /** Of those seated, how many have a socket that nobody has begun to close. */
  get connected(): number {
    let count = 0;
    for (const { socket } of this.#byHost.values()) if (socket !== null) count += 1;
    return count;
  }

  sessions(): ControlSession[] {
    return [...this.#byHost.values()];
  }

  of(host: HostName): ControlSession | undefined {
    return this.#byHost.get(hostKey(host));
  }

  withRelayHostId(relayHostId: string): readonly ControlSession[] {
    return this.#byRelayHostId.get(relayHostId) ?? [];
  }

  /** Seats a session; whoever sat there is not told. */
  seat(session: ControlSession): void {
    const key = hostKey(session.host);
    const before = this.#byHost.get(key);
    if (before !== undefined) this.unseat(before);
    this.#byHost.set(key, session);
    const { relayHostId } = session.host;
    this.#byRelayHostId.set(relayHostId, [...this.withRelayHostId(relayHostId), session]);
  }

  /** Does nothing when a newer session has the seat: a late end of the old one must not unseat it. */
  unseat(session: ControlSession): void {
    const key = hostKey(session.host);
    if (this.#byHost.get(key) !== session) return;
    this.#byHost.delete(key);
    const { relayHostId } = session.host;
    const sharing = this.withRelayHostId(relayHostId).filter((other) => other !== session);
    if (sharing.length > 0) this.#byRelayHostId.set(relayHostId, sharing);
    else this.#byRelayHostId.delete(relayHostId);
  }

  /** A generation this process has never used for the host; taken even if nothing comes of it. */
  nextGeneration(host: HostName): number {
    const key = hostKey(host);
    const generation = (this.#generations.get(key) ?? 0) + 1;
    this.#generations.set(key, generation);
    return generation;
  }

  rememberCloseReason(host: HostName, reason: HostCloseReason): void {
    this.#closeReasons.set(hostKey(host), reason);
  }

  forgetCloseReason(host: HostName): void {
    this.#closeReasons.delete(hostKey(host));
  }

  closeReason(host: HostName): HostCloseReason | undefined {
    return this.#closeReasons.get(hostKey(host));
  }

  /** The host belongs elsewhere, or here anew, from this epoch on. */
  noteLeft(host: HostName, epoch: number): void {
    this.#leftAt.set(hostKey(host), Math.max(epoch, this.#leftAt.get(hostKey(host)) ?? 0));
  }

  /** Whether a seat at this epoch is known to be a thing of the past. */
  hasLeft(host: HostName, epoch: number): boolean {
    return this.leftEpoch(host) > epoch;
  }

  /** Below which seats of the host are; 0 if none is. */
  leftEpoch(host: HostName): number {
    return this.#leftAt.get(hostKey(host)) ?? 0;
  }

  connections(): Connection[] {
    return [...this.#connections.values()];
  }

  connection(connId: string): Connection | undefined {
    return this.#connections.get(connId);
  }

  addConnection(connection: Connection): void {
    this.#connections.set(connection.connId, connection);
  }

  removeConnection(connection: Connection): void {
    this.#connections.delete(connection.connId);
  }
}

import { LIMITS } from '../../contract/limits.ts';
import { ForgottenFloors } from './forgotten-floors.ts';
import type { HostName } from './seat-view.ts';

/**
 * What a director remembers of hosts that are seated nowhere. Each kind keeps the hosts it heard of last, and drops the one it
 * has not heard of for longest.
 */

/** Names a host in a map. The id of a host has a fixed length, so no two names make the same key. */
export function hostKey({ userId, relayHostId }: HostName): string {
  return relayHostId + userId;
}

/** What the keys of all accounts with a host of this id begin with. */
export function startsKey(relayHostId: string, key: string): boolean {
  return key.startsWith(relayHostId) && relayHostId.length === RELAY_HOST_ID_LENGTH;
}

const RELAY_HOST_ID_LENGTH = 16;

export function hostOfKey(key: string): HostName {
  return { relayHostId: key.slice(0, RELAY_HOST_ID_LENGTH), userId: key.slice(RELAY_HOST_ID_LENGTH) };
}

/** A map that drops the entry written longest ago when one more would be too many. */
class Recent<V> {
  readonly #entries = new Map<string, V>();
  readonly #onDropped: (key: string, value: V) => void;

  constructor(onDropped: (key: string, value: V) => void = () => undefined) {
    this.#onDropped = onDropped;
  }

  get size(): number {
    return this.#entries.size;
  }

  keys(): Iterable<string> {
    return this.#entries.keys();
  }

  get(key: string): V | undefined {
    return this.#entries.get(key);
  }

  set(key: string, value: V): void {
    this.#entries.delete(key);
    this.#entries.set(key, value);
    if (this.#entries.size <= LIMITS.rememberedHosts) return;
    const [oldest] = this.#entries;
    if (oldest !== undefined) this.drop(...oldest);
  }

  delete(key: string): void {
    this.#entries.delete(key);
  }

  /** Drops from the oldest on, as long as `isSpent` says so. */
  trim(isSpent: (value: V) => boolean): void {
    for (const [key, value] of this.#entries) {
      if (!isSpent(value)) return;
      this.drop(key, value);
    }
  }

  drop(key: string, value: V): void {
    this.#entries.delete(key);
    this.#onDropped(key, value);
  }
}

/**
 * The highest epoch heard for each host that is not seated at it. Never falls: what no longer fits is handed to the
 * {@link ForgottenFloors}, whose answer counts for every host ever after.
 */
export class Floors {
  readonly forgotten = new ForgottenFloors();
  readonly #floors = new Recent<number>((host, epoch) => this.forgotten.remember(host, epoch));

  get size(): number {
    return this.#floors.size;
  }

  hosts(): Iterable<string> {
    return this.#floors.keys();
  }

  raise(host: string, epoch: number): void {
    if (epoch > (this.#floors.get(host) ?? 0)) this.#floors.set(host, epoch);
  }

  /** The host sits at this epoch: its seat says what this would, until it ends. */
  settle(host: string, epoch: number): void {
    const floor = this.#floors.get(host);
    if (floor !== undefined && floor <= epoch) this.#floors.delete(host);
  }

  of(host: string): number {
    return Math.max(this.#floors.get(host) ?? 0, this.forgotten.of(host));
  }
}

/** The newest epoch that a cell reported booked, a host. Its floor is kept by {@link Floors}. */
export class BookedEpochs {
  readonly #epochs = new Recent<number>();

  get size(): number {
    return this.#epochs.size;
  }

  note(host: string, epoch: number): void {
    this.#epochs.set(host, Math.max(epoch, this.#epochs.get(host) ?? 0));
  }

  of(host: string): number {
    return this.#epochs.get(host) ?? 0;
  }
}

export interface Leaver {
  readonly cellId: string;
  readonly incarnation: string;
  readonly epoch: number;
  readonly closeCode: number | undefined;
  /** Of the cell's wall clock; null when the leave was only seen by its absence. */
  readonly leftAt: number | null;
  /** On the director's clock. */
  readonly at: number;
}

/** The last few seats that each host left, the newest first. */
export class Leavers {
  readonly #leavers = new Recent<readonly Leaver[]>();

  get size(): number {
    return this.#leavers.size;
  }

  hosts(): Iterable<string> {
    return this.#leavers.keys();
  }

  /** One leave may be told twice, by a change and by a list. */
  note(host: string, leaver: Leaver): void {
    this.#leavers.trim((held) => isSpent(held[0] as Leaver, leaver.at));
    const held = this.#leavers.get(host) ?? [];
    if (held.some((other) => isSameLeave(other, leaver))) return;
    const newest = [leaver, ...held].sort((a, b) => b.at - a.at).slice(0, LIMITS.rememberedLeaversAHost);
    this.#leavers.set(host, newest);
  }

  of(host: string, now: number): readonly Leaver[] {
    return (this.#leavers.get(host) ?? []).filter((leaver) => !isSpent(leaver, now));
  }
}

function isSpent(leaver: Leaver, now: number): boolean {
  return now - leaver.at > LIMITS.leaverMemoryMs;
}

function isSameLeave(a: Leaver, b: Leaver): boolean {
  return a.cellId === b.cellId && a.incarnation === b.incarnation && a.epoch === b.epoch && a.leftAt === b.leftAt;
}

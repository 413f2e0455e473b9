import { createHash } from 'node:crypto';

/**
 * The epoch floors of hosts that a director had to forget: 12 bytes each instead of a whole entry. It may say too much for a
 * host and never too little (P1). A slot holds one host, known by 32 bits of its digest; where a second one falls into the
 * same slot, the slot answers for every host there with the highest. Too much costs a host one step of its epoch: what it is
 * granted next lies above the slot.
 */

const SLOTS = 1 << 20;
const SHARED = 0;

export class ForgottenFloors {
  /** Made when something is first forgotten, which most directors never do. */
  #table: { owners: Uint32Array; epochs: Float64Array } | null = null;
  #shared = 0;

  /** Slots that answer for more than one host. */
  get shared(): number {
    return this.#shared;
  }

  remember(host: string, epoch: number): void {
    this.#table ??= { owners: new Uint32Array(SLOTS), epochs: new Float64Array(SLOTS) };
    const { owners, epochs } = this.#table;
    const { slot, owner } = place(host);
    const held = epochs[slot] as number;
    if (held === 0) {
      owners[slot] = owner;
    } else if (owners[slot] !== owner && owners[slot] !== SHARED) {
      owners[slot] = SHARED;
      this.#shared += 1;
    }
    if (epoch > held) epochs[slot] = epoch;
  }

  /** 0 for a host that was surely never forgotten. */
  of(host: string): number {
    if (this.#table === null) return 0;
    const { slot, owner } = place(host);
    const holder = this.#table.owners[slot];
    return holder === owner || holder === SHARED ? (this.#table.epochs[slot] as number) : 0;
  }
}

function place(host: string): { slot: number; owner: number } {
  const digest = createHash('sha256').update(host).digest();
  return { slot: digest.readUInt32LE(0) % SLOTS, owner: digest.readUInt32LE(4) || 1 };
}

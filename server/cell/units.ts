import { LIMITS } from '../../contract/index.ts';

/** Why a socket finds no room: the answers differ with the kind of cell (`wire` 1.3). */
export type UnitRefusal = 'no-units' | 'too-many-sockets';

/** Room for one socket, from its upgrade to its end. */
export interface Unit {
  /** The upgrade has become a socket. */
  opened(): void;
  /** The socket has ended, or never came to be. Exactly once: a second time is counted as a fault, and changes nothing. */
  release(): void;
}

/** A phone's own unit, and on a capped cell one kept for the data socket of its host. */
export interface PhoneUnits extends Unit {
  /** `conn-open` has gone out: the kept unit is for the data socket of this connection. */
  bind(connId: string): void;
}

export interface HostDataUnit extends Unit {
  /** The ticket was right. Otherwise the unit goes back to the phone that waits. */
  keep(): void;
}

/** A unit that is kept for the control of a host, which a director booked a seat for. */
export interface BookedUnit {
  /** Whether it is here to be lent, or handed to a newer booking. */
  readonly kept: boolean;
  /** For the host's socket, which has it for good once it has opened; null while another has it, and ever after. */
  lend(): Unit | null;
  /** Its booking is over: what a socket has, it keeps. */
  release(): void;
}

/** How much a kind of socket takes, and up to where. */
interface Rule {
  ceiling: number;
  /** Its own unit and those it keeps for later. */
  units: 1 | 2;
}

interface Rules {
  refusal: UnitRefusal;
  control: Rule;
  /** A control that takes the place of a live one, which is about to go. */
  rebind: Rule;
  phone: Rule;
  /** Without a unit kept for it. */
  hostData: Rule;
}

function cappedRules(hardCap: number): Rules {
  const ordinary = hardCap - LIMITS.reservedHostControls;
  return {
    refusal: 'no-units',
    control: { ceiling: ordinary, units: 1 },
    rebind: { ceiling: hardCap, units: 1 },
    phone: { ceiling: ordinary, units: 2 },
    hostData: { ceiling: ordinary, units: 1 },
  };
}

/** Ordinary ceiling 650: the rest stays free for data sockets (150) and controls (100). */
function uncappedRules(): Rules {
  const total = LIMITS.uncappedConnections;
  const hostData = total - LIMITS.reservedHostControls;
  return {
    refusal: 'too-many-sockets',
    control: { ceiling: total, units: 1 },
    rebind: { ceiling: total, units: 1 },
    phone: { ceiling: hostData - LIMITS.reservedHostDataSockets, units: 1 },
    hostData: { ceiling: hostData, units: 1 },
  };
}

/**
 * Up to where a cell promises seats: what the directors place by as well, so that a booking and the database's placement
 * fill a cell alike. On an uncapped cell that is its capacity, as far as it has units.
 */
export function bookingCeiling(
  limit: { hardCap: number; unobservedBound: number } | null,
  capacityUnits: number,
): number {
  if (limit === null) return Math.min(capacityUnits, LIMITS.uncappedConnections);
  return limit.hardCap - LIMITS.reservedHostControls - limit.unobservedBound;
}

/** Where a socket's unit stands. */
type Stage = 'in-flight' | 'physical' | 'released';

/** A phone's kept unit: `lent` to a data socket whose ticket is not known to be right yet. */
interface KeptUnit {
  state: 'none' | 'kept' | 'lent' | 'gone';
  connId: string | null;
}

/**
 * The connection units of a cell (`wire` 2.2): physical + in flight + reserved = enforced. Nothing is clamped: a path that
 * releases twice shows in `faults`, one that never does shows in counts that do not return to zero.
 */
export class Units {
  readonly #rules: Rules;
  readonly #kept = new Map<string, KeptUnit>();
  #physical = 0;
  #inFlight = 0;
  #reserved = 0;
  #watermark = 0;
  #faults = 0;

  /** @param hardCap null for an uncapped cell. */
  constructor(hardCap: number | null) {
    this.#rules = hardCap === null ? uncappedRules() : cappedRules(hardCap);
  }

  get physical(): number {
    return this.#physical;
  }

  get inFlight(): number {
    return this.#inFlight;
  }

  get reserved(): number {
    return this.#reserved;
  }

  get enforced(): number {
    return this.#physical + this.#inFlight + this.#reserved;
  }

  /** Rises with every change: who knows a watermark knows whether a later count includes it. */
  get inclusionWatermark(): number {
    return this.#watermark;
  }

  /** Releases beyond the first; 0 in a correct process. */
  get faults(): number {
    return this.#faults;
  }

  /** @param rebind whether the same identity has a live control here. */
  control(rebind: boolean): Unit | UnitRefusal {
    if (!this.#fits(rebind ? this.#rules.rebind : this.#rules.control)) return this.#rules.refusal;
    return this.#socket(() => {});
  }

  phone(): PhoneUnits | UnitRefusal {
    const rule = this.#rules.phone;
    if (!this.#fits(rule)) return this.#rules.refusal;
    const kept: KeptUnit = { state: rule.units === 2 ? 'kept' : 'none', connId: null };
    this.#move({ reserved: rule.units - 1 });
    const unit = this.#socket(() => {
      if (kept.connId !== null) this.#kept.delete(kept.connId);
      if (kept.state === 'kept') this.#move({ reserved: -1 });
      // A unit that is lent goes with the data socket that has it.
      kept.state = 'gone';
    });
    return {
      ...unit,
      bind: (connId) => {
        if (kept.state !== 'kept' || kept.connId !== null) return;
        kept.connId = connId;
        this.#kept.set(connId, kept);
      },
    };
  }

  hostData(connId: string): HostDataUnit | UnitRefusal {
    const kept = this.#kept.get(connId);
    const lent = kept?.state === 'kept' ? kept : null;
    if (lent === null && !this.#fits(this.#rules.hostData)) return this.#rules.refusal;
    if (lent !== null) {
      lent.state = 'lent';
      this.#move({ reserved: -1 });
    }
    let decided = false;
    const unit = this.#socket(() => {
      if (decided || lent === null || lent.state !== 'lent') return;
      lent.state = 'kept';
      this.#move({ reserved: 1 });
    });
    return {
      ...unit,
      keep: () => {
        decided = true;
      },
    };
  }

  /** Whether there is one more unit under a ceiling. */
  hasRoom(ceiling: number): boolean {
    return this.#fits({ ceiling, units: 1 });
  }

  /** A unit for a host that is yet to come. */
  booking(ceiling: number): BookedUnit | UnitRefusal {
    if (!this.hasRoom(ceiling)) return this.#rules.refusal;
    let state: 'kept' | 'lent' | 'gone' = 'kept';
    this.#move({ reserved: 1 });
    return {
      get kept() {
        return state === 'kept';
      },
      lend: () => {
        if (state !== 'kept') return null;
        state = 'lent';
        this.#move({ reserved: -1 });
        const unit = this.#socket(() => {
          if (state !== 'lent') return;
          state = 'kept';
          this.#move({ reserved: 1 });
        });
        return {
          opened: () => {
            state = 'gone';
            unit.opened();
          },
          release: unit.release,
        };
      },
      release: () => {
        if (state === 'kept') this.#move({ reserved: -1 });
        state = 'gone';
      },
    };
  }

  #fits(rule: Rule): boolean {
    return this.enforced + rule.units <= rule.ceiling;
  }

  /** One socket's own unit; `ended` runs at its release, for what hangs on it. */
  #socket(ended: () => void): Unit {
    let stage: Stage = 'in-flight';
    this.#move({ inFlight: 1 });
    return {
      opened: () => {
        if (stage !== 'in-flight') return;
        stage = 'physical';
        this.#move({ inFlight: -1, physical: 1 });
      },
      release: () => {
        if (stage === 'released') {
          this.#faults++;
          return;
        }
        this.#move(stage === 'physical' ? { physical: -1 } : { inFlight: -1 });
        stage = 'released';
        ended();
      },
    };
  }

  #move(change: { physical?: number; inFlight?: number; reserved?: number }): void {
    this.#physical += change.physical ?? 0;
    this.#inFlight += change.inFlight ?? 0;
    this.#reserved += change.reserved ?? 0;
    this.#watermark++;
  }
}

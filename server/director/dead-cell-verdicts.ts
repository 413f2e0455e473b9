import type { WithheldVerdict } from '../../contract/events.ts';
import { LIMITS } from '../../contract/limits.ts';
import type { Clock } from '../clock.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import { MEANING } from './feed-outcomes.ts';
import {
  type Disruption,
  type PolledCell,
  Reachability,
  type Verdict,
  type VerdictCounts,
  WITHHELD_REASONS,
  type WithheldReason,
} from './reachability.ts';
import type { RefreshOutcome } from './seat-map.ts';

/**
 * This director's verdicts on cells whose hosts ask for another: fed by its polls. One that is withheld keeps hosts waiting,
 * so it is said: in the log when a host asks, and to whoever watches as soon as it is so.
 */

const SAID_AGAIN_MS = 60_000;

interface Withheld extends VerdictCounts {
  cellId: string;
  reason: WithheldReason;
  /** Of this director's clock. */
  since: number;
}

export type WithheldEvent =
  | { type: 'withheld'; withheld: WithheldVerdict }
  /** It is judged again: dead or not, or no longer a reserve cell that is polled. */
  | { type: 'over'; withheld: WithheldVerdict; verdict: 'dead' | 'not-dead' };

type Listener = (event: WithheldEvent) => void;

export class DeadCellVerdicts {
  readonly #reachability = new Reachability();
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #meters: ReturnType<typeof measure>;
  readonly #listeners: Listener[] = [];
  /** When a withheld verdict on a cell was last said. */
  readonly #said = new Map<string, number>();
  #withheld: ReadonlyMap<string, Withheld> = new Map();

  constructor(log: Logger, metrics: Metrics, clock: Clock) {
    this.#clock = clock;
    this.#log = log;
    this.#meters = measure(metrics);
  }

  /** Told when a verdict begins to be withheld, when the reason is another, and when it is over. */
  onWithheld(listener: Listener): void {
    this.#listeners.push(listener);
  }

  round(cells: readonly PolledCell[], lateMs: number): void {
    this.#reachability.round(cells, lateMs, this.#clock.now());
    this.#follow(cells);
  }

  polled(cellId: string, outcome: RefreshOutcome): void {
    const sign = outcome.ok ? 'page' : MEANING[outcome.failure].liveness;
    this.#reachability.polled(cellId, sign, this.#clock.now());
  }

  /** For a host that waits for it. */
  of(cellId: string): Verdict {
    const verdict = this.look(cellId);
    this.#meters.count(verdict);
    if (verdict.verdict === 'withheld') this.#say(cellId, verdict);
    return verdict;
  }

  /** For somebody who only looks. */
  look(cellId: string): Verdict {
    return this.#reachability.verdict(cellId, this.#clock.now());
  }

  /** Whether a cell that does not answer has its region or the fleet for company: nothing is to be made of it then (P5). */
  disruption(cellId: string): Disruption | null {
    return this.#reachability.disruption(cellId, this.#clock.now());
  }

  /** How long a host must wait at least until its silent home can be judged; null if there is nothing to wait for. */
  judgedInMs(cellId: string): number | null {
    const leftMs = this.#reachability.deadInMs(cellId, this.#clock.now());
    return leftMs === null ? null : leftMs + LIMITS.feedPollMs;
  }

  /** As of the last round. */
  withheld(): readonly WithheldVerdict[] {
    return [...this.#withheld.values()].map((one) => this.#told(one));
  }

  /** No verdict is asked for on a cell in db mode: its hosts wait for its fence, or for nothing. */
  #follow(cells: readonly PolledCell[]): void {
    const now = this.#clock.now();
    const reserve = cells.filter(({ admit_mode }) => admit_mode === 'reserve').map(({ cell_id }) => cell_id);
    const before = this.#withheld;
    const after = new Map<string, Withheld>();
    for (const cellId of reserve) {
      const said = this.look(cellId);
      if (said.verdict !== 'withheld') continue;
      const { verdict: _, ...why } = said;
      after.set(cellId, { cellId, since: before.get(cellId)?.since ?? now, ...why });
    }
    this.#withheld = after;
    this.#meters.show(reserve, after);
    for (const withheld of after.values()) {
      if (before.get(withheld.cellId)?.reason !== withheld.reason)
        this.#tell({ type: 'withheld', withheld: this.#told(withheld) });
    }
    for (const withheld of before.values()) {
      if (after.has(withheld.cellId)) continue;
      const verdict = this.look(withheld.cellId).verdict === 'dead' ? 'dead' : 'not-dead';
      this.#tell({ type: 'over', withheld: this.#told(withheld), verdict });
    }
  }

  #told({ since, ...why }: Withheld): WithheldVerdict {
    return { ...why, forMs: Math.round(this.#clock.now() - since) };
  }

  #tell(event: WithheldEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  #say(cellId: string, { verdict: _, ...why }: Extract<Verdict, { verdict: 'withheld' }>): void {
    const now = this.#clock.now();
    for (const [cell, at] of this.#said) if (now - at >= SAID_AGAIN_MS) this.#said.delete(cell);
    if (this.#said.has(cellId)) return;
    this.#said.set(cellId, now);
    this.#log.warn({ event: 'orca_relay_dead_cell_verdict_withheld', cellId, ...why });
  }
}

function measure(metrics: Metrics) {
  const verdicts = metrics.counter('orca_relay_dead_cell_verdicts_total', 'Verdicts on silent cells', ['verdict']);
  const withheld = metrics.gauge(
    'orca_relay_dead_cell_verdict_withheld',
    '1 while a reserve cell would be judged dead but for this guard',
    ['cell', 'reason'],
  );
  return {
    count: (verdict: Verdict) =>
      verdicts.inc({ verdict: verdict.verdict === 'withheld' ? `withheld_${verdict.reason}` : verdict.verdict }),
    show(cells: readonly string[], now: ReadonlyMap<string, Withheld>) {
      withheld.reset();
      for (const cell of cells) {
        for (const reason of WITHHELD_REASONS) {
          withheld.set({ cell, reason }, now.get(cell)?.reason === reason ? 1 : 0);
        }
      }
    },
  };
}

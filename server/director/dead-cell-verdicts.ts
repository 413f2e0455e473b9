import type { Clock } from '../clock.ts';
import type { Logger } from '../log.ts';
import type { Metrics } from '../metrics.ts';
import { MEANING } from './feed-outcomes.ts';
import type { PolledCell, Verdict } from './reachability.ts';
import { Reachability } from './reachability.ts';
import type { RefreshOutcome } from './seat-map.ts';

/** This director's verdicts on cells whose hosts ask for another: fed by its polls, and said when they are withheld. */

const SAID_AGAIN_MS = 60_000;

export class DeadCellVerdicts {
  readonly #reachability = new Reachability();
  readonly #clock: Clock;
  readonly #log: Logger;
  readonly #count: (verdict: Verdict) => void;
  /** When a withheld verdict on a cell was last said. */
  readonly #said = new Map<string, number>();

  constructor(log: Logger, metrics: Metrics, clock: Clock) {
    this.#clock = clock;
    this.#log = log;
    const verdicts = metrics.counter('orca_relay_dead_cell_verdicts_total', 'Verdicts on silent cells', ['verdict']);
    this.#count = (verdict) =>
      verdicts.inc({ verdict: verdict.verdict === 'withheld' ? `withheld_${verdict.reason}` : verdict.verdict });
  }

  round(cells: readonly PolledCell[], lateMs: number): void {
    this.#reachability.round(cells, lateMs, this.#clock.now());
  }

  polled(cellId: string, outcome: RefreshOutcome): void {
    const sign = outcome.ok ? 'page' : MEANING[outcome.failure].liveness;
    this.#reachability.polled(cellId, sign, this.#clock.now());
  }

  of(cellId: string): Verdict {
    const verdict = this.#reachability.verdict(cellId, this.#clock.now());
    this.#count(verdict);
    if (verdict.verdict === 'withheld') this.#say(cellId, verdict);
    return verdict;
  }

  #say(cellId: string, { verdict: _, ...why }: Extract<Verdict, { verdict: 'withheld' }>): void {
    const now = this.#clock.now();
    for (const [cell, at] of this.#said) if (now - at >= SAID_AGAIN_MS) this.#said.delete(cell);
    if (this.#said.has(cellId)) return;
    this.#said.set(cellId, now);
    this.#log.warn({ event: 'orca_relay_dead_cell_verdict_withheld', cellId, ...why });
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import type pg from 'pg';
import { median } from './stats.ts';

/** One request of a client, from its first statement to its last answer. */
export type Work = (client: pg.Client) => Promise<unknown>;

const WARM_UP = 20;

/** How often a second `clients` together do `work`, each beginning anew as soon as it is done. */
async function rate(clients: readonly pg.Client[], work: Work, seconds: number): Promise<number> {
  for (const client of clients) for (let n = 0; n < WARM_UP; n++) await work(client);
  let done = 0;
  const started = performance.now();
  const end = started + seconds * 1_000;
  await Promise.all(
    clients.map(async (client) => {
      while (performance.now() < end) {
        await work(client);
        done++;
      }
    }),
  );
  return (done * 1_000) / (performance.now() - started);
}

/**
 * The rates of several kinds of work, side by side: they take turns, so that whatever else the machine does meets all of
 * them alike, and the median of the turns counts. `before` runs ahead of each turn.
 */
export async function compareRates<K extends string>(
  clients: readonly pg.Client[],
  works: Readonly<Record<K, Work>>,
  options: { turns: number; seconds: number; before?: () => Promise<void> },
): Promise<Record<K, number>> {
  const kinds = Object.keys(works) as K[];
  const rates = Object.fromEntries(kinds.map((kind) => [kind, [] as number[]])) as Record<K, number[]>;
  for (let turn = 0; turn < options.turns; turn++) {
    for (const kind of kinds) {
      await options.before?.();
      rates[kind].push(await rate(clients, works[kind], options.seconds));
    }
  }
  return Object.fromEntries(kinds.map((kind) => [kind, median(rates[kind])])) as Record<K, number>;
}

/** How long each piece of work took, in milliseconds from when it was due, when `perSecond` of them fall due whatever happens. */
export async function latenciesAt(
  clients: readonly pg.Client[],
  work: Work,
  perSecond: number,
  seconds: number,
): Promise<number[]> {
  for (const client of clients) for (let n = 0; n < WARM_UP; n++) await work(client);
  const started = performance.now();
  const total = perSecond * seconds;
  const latencies: number[] = [];
  let next = 0;
  await Promise.all(
    clients.map(async (client) => {
      for (let n = next++; n < total; n = next++) {
        const due = started + (n * 1_000) / perSecond;
        const early = due - performance.now();
        // timers are a millisecond coarse: whoever is early by less begins at once
        if (early > 1) await sleep(early);
        const begun = Math.min(due, performance.now());
        await work(client);
        latencies.push(performance.now() - begun);
      }
    }),
  );
  return latencies;
}

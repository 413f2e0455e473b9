import type { Clock } from './clock.ts';
import type { Logger } from './log.ts';
import type { DependencyState } from './role-part.ts';

export type Dependency = 'jwks' | 'sql';

export type ReadyVerdict =
  | { ready: true; degraded: Dependency[] }
  | { ready: false; reason: 'not_accepting' | 'dependency_unavailable' };

export interface ReadinessChecks {
  /** Null: nothing to ask, which is always well. */
  check(): Promise<{ accepting: boolean; dependencies: Partial<Record<Dependency, DependencyState>> }>;
  /** How long after its last success a dependency that fails leaves the process ready (degraded). 0: not at all. */
  graceMs: Readonly<Record<Dependency, number>>;
  clock: Clock;
  log: Logger;
}

/** Wire 2.11. Load balancers ask often, and a dependency in trouble must not be asked more for it. */
const CACHE_MS = 10_000;
/** A process that is only just starting should not have to wait that long for its first traffic. */
const NOT_ACCEPTING_CACHE_MS = 1_000;

/** Answers `/ready`: one check at a time, kept for 10 s, each dependency with its own grace. Never rejects. */
export function createReadiness(checks: ReadinessChecks): () => Promise<ReadyVerdict> {
  const { clock, log } = checks;
  const lastGood: Partial<Record<Dependency, number>> = {};
  const inGrace = new Set<Dependency>();
  let cached: { until: number; verdict: Promise<ReadyVerdict> } | null = null;

  const judge = (dependency: Dependency, state: DependencyState): 'good' | 'grace' | 'lost' => {
    const now = clock.now();
    if (state.ok) {
      lastGood[dependency] = now;
      if (inGrace.delete(dependency)) log.info({ event: 'orca_relay_readiness_grace_left', dependency });
      return 'good';
    }
    const since = lastGood[dependency];
    const within = since !== undefined && now - since < checks.graceMs[dependency];
    log.warn({ event: 'orca_relay_readiness_check', dependency, reason: state.reason, grace: within });
    if (within && !inGrace.has(dependency)) {
      inGrace.add(dependency);
      log.warn({ event: 'orca_relay_readiness_grace_entered', dependency, reason: state.reason });
    }
    return within ? 'grace' : 'lost';
  };

  const evaluate = async (): Promise<ReadyVerdict> => {
    try {
      const { accepting, dependencies } = await checks.check();
      const judged = (Object.entries(dependencies) as [Dependency, DependencyState][]).map(
        ([dependency, state]) => [dependency, judge(dependency, state)] as const,
      );
      if (!accepting) return { ready: false, reason: 'not_accepting' };
      if (judged.some(([, standing]) => standing === 'lost')) return { ready: false, reason: 'dependency_unavailable' };
      return { ready: true, degraded: judged.filter(([, standing]) => standing === 'grace').map(([name]) => name) };
    } catch (error) {
      log.error({ event: 'orca_relay_readiness_check', error });
      return { ready: false, reason: 'not_accepting' };
    }
  };

  return () => {
    if (cached !== null && clock.now() < cached.until) return cached.verdict;
    const started = clock.now();
    const fresh = { until: started + CACHE_MS, verdict: evaluate() };
    cached = fresh;
    void fresh.verdict.then((verdict) => {
      if (!verdict.ready && verdict.reason === 'not_accepting') fresh.until = started + NOT_ACCEPTING_CACHE_MS;
    });
    return fresh.verdict;
  };
}

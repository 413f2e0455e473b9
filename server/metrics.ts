import { Counter, collectDefaultMetrics, Gauge, Histogram, type Metric, Registry } from 'prom-client';

/**
 * The metrics of one process. Helpers create a metric at its first use and answer the same one afterwards, so that each part
 * names its metrics where it counts; two parts in one Node process never share a registry by accident.
 */
export interface Metrics {
  registry: Registry;
  counter<L extends string = never>(name: string, help: string, labels?: readonly L[]): Counter<L>;
  gauge<L extends string = never>(name: string, help: string, labels?: readonly L[], collect?: () => number): Gauge<L>;
  histogram<L extends string = never>(
    name: string,
    help: string,
    labels?: readonly L[],
    buckets?: readonly number[],
  ): Histogram<L>;
}

/** Seconds. Dense below 10 ms, where a healthy call to Postgres lies. */
export const LATENCY_BUCKETS: readonly number[] = [
  0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2, 5,
];

export interface MetricsOptions {
  /** Adds Node's own figures: heap, event loop delay, garbage collection. Once a process. */
  process?: boolean;
}

export function createMetrics(options: MetricsOptions = {}): Metrics {
  const registry = new Registry();
  if (options.process) collectDefaultMetrics({ register: registry });
  const existing = <M extends Metric<string>>(name: string) => registry.getSingleMetric(name) as M | undefined;
  const shared = (name: string, help: string, labels: readonly string[] = []) => ({
    name,
    help,
    labelNames: [...labels],
    registers: [registry],
  });
  return {
    registry,
    counter: <L extends string>(name: string, help: string, labels?: readonly L[]) =>
      existing<Counter<L>>(name) ?? (new Counter(shared(name, help, labels)) as unknown as Counter<L>),
    gauge: <L extends string>(name: string, help: string, labels?: readonly L[], collect?: () => number) => {
      const found = existing<Gauge<L>>(name);
      if (found) return found;
      const gauge: Gauge<string> = new Gauge({
        ...shared(name, help, labels),
        ...(collect ? { collect: () => gauge.set(collect()) } : {}),
      });
      return gauge as unknown as Gauge<L>;
    },
    histogram: <L extends string>(name: string, help: string, labels?: readonly L[], buckets = LATENCY_BUCKETS) =>
      existing<Histogram<L>>(name) ??
      (new Histogram({ ...shared(name, help, labels), buckets: [...buckets] }) as unknown as Histogram<L>),
  };
}

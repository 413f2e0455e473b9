import type { Clock } from './clock.ts';
import type { Config } from './config.ts';
import type { Database } from './database.ts';
import type { Logger } from './log.ts';
import type { Metrics } from './metrics.ts';
import type { App } from './uws.ts';

/** What a role's part gets to work with. */
export interface RoleContext {
  config: Config;
  db: Database;
  log: Logger;
  metrics: Metrics;
  clock: Clock;
  /** What peers are held to. */
  peerTime: Clock;
  /** This process's own origin as clients reach it; known once it listens. */
  origin(): string;
  /** The part says that this process must not go on: it stops listening at once, stops, and ends with an error. */
  leave(reason: string): void;
}

export type DependencyState = { ok: true } | { ok: false; reason: string };

export interface ReadinessReport {
  /** False while the part must get no traffic whatever its dependencies say. */
  accepting: boolean;
  /** Whether the keys of relay tokens can be had; absent where no key server is configured. */
  jwks?: DependencyState;
  /** The part goes by what it has itself: that others are away costs it a host at the door, not its name. */
  local?: boolean;
}

/** A director or a cell inside a process; the combined role runs both on one origin. */
export interface RolePart {
  /** Adds its routes. Called once, before the process listens. */
  register(app: App): void;
  /** Called once, after the process listens. */
  start(): Promise<void>;
  /** Asked at most every 10 s. A rejection counts as not accepting. */
  readiness(): Promise<ReadinessReport> | ReadinessReport;
  /** Ends what it holds, bounded; called once. */
  stop(): Promise<void>;
}

/** Directors and cells over one database, in this process or as processes of their own. */
import { spawn } from 'node:child_process';
import { randomBytes, randomInt } from 'node:crypto';
import { createServer } from 'node:net';
import { fileURLToPath } from 'node:url';
import { LIMITS } from '../../../contract/index.ts';
import { readConfig } from '../../../server/config.ts';
import { type RunningProcess, startProcess } from '../../../server/run.ts';
import { freshDatabase } from '../../support/database.ts';
import { type HostIdentity, hashOf, newIdentity } from './identity.ts';
import { AUDIENCE, type Issuer, startIssuer, type TokenOptions } from './issuer.ts';
import { JumpClock } from './jump-clock.ts';
import { assign, type Grant } from './parts.ts';
import { type HostDial, RawHost } from './raw-host.ts';
import { scrape, total } from './scrape.ts';
import { until } from './wait.ts';

export type Role = 'relay_director' | 'relay_cell' | 'relay_operator' | 'relay_monitor';

/** The part of a test database that a fleet needs: the shared server's clone, or a server of the test's own. */
export interface FleetDatabase {
  url: string;
  urlFor(role: Role): string;
  query(text: string, values?: unknown[]): Promise<Record<string, unknown>[]>;
  advanceClock(ms: number): Promise<void>;
  drop(): Promise<void>;
}

export interface CellSpec {
  id?: string;
  region?: string;
  capacity?: number;
  limit?: { hardCap: number; unobservedBound: number };
  env?: Record<string, string>;
}

export interface FleetOptions {
  cells?: CellSpec[];
  directors?: number;
  /** Each part a process of its own, so that signals mean something. */
  processes?: boolean;
  database?: FleetDatabase;
  /** Where processes find the database, when it is not the database itself (a proxy). */
  rewriteUrl?: (url: string) => string;
  env?: Record<string, string>;
  /** Of hosts' tokens that a test asks for without a life of their own. */
  tokenLifeSeconds?: number;
}

export interface Node {
  id: string;
  origin: string;
  env: Record<string, string>;
  start(): Promise<void>;
  /** In-process: the same as SIGTERM. */
  stop(): Promise<void>;
  signal(signal: NodeJS.Signals): void;
  exited(): Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  output(): string;
}

/** A process is a second or two in starting; a machine with other work may take far longer. */
const STARTUP_MS = 50_000;

const ROOT = fileURLToPath(new URL('../../..', import.meta.url));

async function isFree(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = createServer();
    probe.once('error', () => resolve(false));
    probe.listen(port, '127.0.0.1', () => probe.close(() => resolve(true)));
  });
}

/** Below the range the kernel hands out for outgoing connections, so that nobody takes it before the process does. */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(12_000, 32_000);
    if (await isFree(port)) return port;
  }
}

function inProcessNode(id: string, origin: string, env: Record<string, string>, clock: JumpClock): Node {
  let running: RunningProcess | null = null;
  return {
    id,
    origin,
    env,
    async start() {
      running = await startProcess(readConfig(env), { clock });
    },
    async stop() {
      const stopping = running;
      running = null;
      await stopping?.stop();
    },
    signal() {
      throw new Error('signals are for fleets of processes');
    },
    exited: () => Promise.reject(new Error('no process of its own')),
    output: () => '',
  };
}

export interface Child {
  pid: number;
  signal(signal: NodeJS.Signals): void;
  exited: Promise<{ code: number | null; signal: NodeJS.Signals | null }>;
  output(): string;
  errors(): string;
}

/** Runs the CLI from its sources with nothing of this process's environment but the path. */
export function runCli(args: string[], env: Record<string, string>): Child {
  const child = spawn(process.execPath, ['--import', 'tsx', `${ROOT}/server/cli.ts`, ...args], {
    cwd: ROOT,
    env: { PATH: process.env.PATH ?? '', HOME: process.env.HOME ?? '', ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let output = '';
  let errors = '';
  child.stdout.on('data', (chunk) => {
    output += chunk;
  });
  child.stderr.on('data', (chunk) => {
    output += chunk;
    errors += chunk;
  });
  const exited = new Promise<{ code: number | null; signal: NodeJS.Signals | null }>((resolve) => {
    const reap = () => child.kill('SIGKILL');
    process.once('exit', reap);
    child.on('close', (code, signal) => {
      process.off('exit', reap);
      resolve({ code, signal });
    });
  });
  return {
    pid: child.pid ?? 0,
    signal: (signal) => child.kill(signal),
    exited,
    output: () => output,
    errors: () => errors,
  };
}

function processNode(id: string, origin: string, env: Record<string, string>): Node {
  let child: Child | null = null;
  const current = (): Child => {
    if (child === null) throw new Error(`${id} was never started`);
    return child;
  };
  return {
    id,
    origin,
    env,
    async start() {
      const own = runCli([], env);
      child = own;
      let gone = false;
      void own.exited.then(() => {
        gone = true;
      });
      await until(
        `${id} listening`,
        async () =>
          gone ||
          (await fetch(`${origin}/health`).then(
            (reply) => reply.ok,
            () => false,
          )),
        (seen) => seen,
        STARTUP_MS,
      );
      if (gone) throw new Error(`${id} ended: ${own.output()}`);
    },
    async stop() {
      if (child === null) return;
      child.signal('SIGTERM');
      const timer = setTimeout(() => child?.signal('SIGKILL'), 7_000);
      await child.exited;
      clearTimeout(timer);
    },
    signal: (signal) => current().signal(signal),
    exited: () => current().exited,
    output: () => child?.output() ?? '',
  };
}

export interface Seated {
  identity: HostIdentity;
  grant: Grant;
  host: RawHost;
}

export class Fleet {
  readonly clock = new JumpClock();
  readonly signingKey = randomBytes(32).toString('base64url');
  readonly cells: Node[] = [];
  readonly directors: Node[] = [];
  readonly database: FleetDatabase;
  readonly issuer: Issuer;
  readonly #options: FleetOptions;
  readonly #ownsDatabase: boolean;
  #hosts: RawHost[] = [];

  private constructor(database: FleetDatabase, issuer: Issuer, options: FleetOptions) {
    this.database = database;
    this.issuer = issuer;
    this.#options = options;
    this.#ownsDatabase = options.database === undefined;
  }

  /** Everything is registered, listening and heard when this resolves. */
  static async start(options: FleetOptions = {}): Promise<Fleet> {
    const database = options.database ?? (await freshDatabase());
    const issuer = await startIssuer();
    const fleet = new Fleet(database, issuer, options);
    try {
      for (const spec of options.cells ?? [{}]) await fleet.addCell(spec);
      for (let left = options.directors ?? 1; left > 0; left -= 1) await fleet.addDirector();
      await Promise.all([...fleet.cells, ...fleet.directors].map((node) => node.start()));
      await fleet.heard();
    } catch (error) {
      await fleet.stop();
      throw error;
    }
    return fleet;
  }

  get director(): Node {
    return this.directors[0]!;
  }

  cell(index = 0): Node {
    return this.cells[index]!;
  }

  cellAt(origin: string): Node {
    const found = this.cells.find((cell) => cell.origin === origin);
    if (found === undefined) throw new Error(`no cell at ${origin}`);
    return found;
  }

  #env(role: string, port: number, databaseUrl: string): Record<string, string> {
    return {
      PORT: String(port),
      ORCA_RELAY_HOST: '127.0.0.1',
      ORCA_RELAY_ROLE: role,
      ORCA_RELAY_PUBLIC_URL: `http://127.0.0.1:${port}`,
      ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: this.signingKey,
      ORCA_RELAY_AUTH_ISSUER: this.issuer.issuer,
      ORCA_RELAY_JWKS_URL: this.issuer.jwksUrl,
      ORCA_RELAY_AUTH_AUDIENCE: AUDIENCE,
      ...(this.#options.processes === true
        ? {}
        : { ORCA_RELAY_LOG_LEVEL: process.env.ORCA_RELAY_LOG_LEVEL ?? 'silent' }),
      DATABASE_URL: this.#options.rewriteUrl?.(databaseUrl) ?? databaseUrl,
      ...this.#options.env,
    };
  }

  #node(id: string, port: number, env: Record<string, string>): Node {
    const origin = `http://127.0.0.1:${port}`;
    return this.#options.processes === true ? processNode(id, origin, env) : inProcessNode(id, origin, env, this.clock);
  }

  /** Registers a cell and prepares its process, which the caller starts. */
  async addCell(spec: CellSpec = {}): Promise<Node> {
    const port = await freePort();
    const node = this.#node(spec.id ?? `c${this.cells.length + 1}`, port, {
      ...this.#env('cell', port, this.database.urlFor('relay_cell')),
      ORCA_RELAY_REGION: spec.region ?? 'us-central1',
      ORCA_RELAY_CELL_CAPACITY: String(spec.capacity ?? 900),
      ...(spec.limit === undefined
        ? {}
        : {
            ORCA_RELAY_CELL_CONNECTION_HARD_CAP: String(spec.limit.hardCap),
            ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND: String(spec.limit.unobservedBound),
          }),
      ...spec.env,
    });
    node.env.ORCA_RELAY_CELL_ID = node.id;
    node.env.ORCA_RELAY_CELL_URL = node.origin;
    await this.#register(node, spec);
    this.cells.push(node);
    return node;
  }

  /** Prepares a process that is both director and cell, as a self-hoster runs it. */
  async addCombined(selfHostedKey: string): Promise<Node> {
    const port = await freePort();
    const {
      ORCA_RELAY_AUTH_ISSUER: _issuer,
      ORCA_RELAY_JWKS_URL: _keys,
      ...env
    } = this.#env('combined', port, this.database.url);
    const node = this.#node('combined', port, { ...env, ORCA_RELAY_SELF_HOSTED_KEY: selfHostedKey });
    await this.#register(node, {});
    this.directors.push(node);
    this.cells.push(node);
    return node;
  }

  async #register(node: Node, { region, capacity, limit }: CellSpec): Promise<void> {
    const [row] = await this.database.query(
      `select relay_v1.register_cell(cell_id => $1, url => $2, region => $3, capacity_units => $4,
         connection_hard_cap => $5, connection_unobserved_bound => $6) as answer`,
      [
        node.id,
        node.origin,
        region ?? 'us-central1',
        capacity ?? 900,
        limit?.hardCap ?? null,
        limit?.unobservedBound ?? null,
      ],
    );
    if (row?.answer !== 'ok') throw new Error(`register_cell answered ${row?.answer}`);
  }

  /** Another process of the same cell: same name, another port behind the same registered origin. */
  async twin(cell: Node): Promise<Node> {
    const port = await freePort();
    return this.#node(`${cell.id}-twin`, port, { ...cell.env, PORT: String(port) });
  }

  /** Prepares a director, which the caller starts. */
  async addDirector(extra: Record<string, string> = {}): Promise<Node> {
    const port = await freePort();
    const env = { ...this.#env('director', port, this.database.urlFor('relay_director')), ...extra };
    const node = this.#node(`d${this.directors.length + 1}`, port, env);
    this.directors.push(node);
    return node;
  }

  /** Waits until every cell that runs knows that the database has heard it: from then on it takes hosts. */
  async heard(cells: Node[] = this.cells): Promise<void> {
    for (const cell of cells) {
      await until(
        `an accepted heartbeat of ${cell.id}`,
        () => scrape(cell.origin).then((samples) => total(samples, 'orca_relay_heartbeats_total', { answer: 'ok' })),
        (count) => count > 0,
        STARTUP_MS,
      );
    }
  }

  token(identity: HostIdentity, options: TokenOptions = {}): Promise<string> {
    const expiresAt =
      Math.floor(this.clock.wallNow() / 1000) + (options.lifeSeconds ?? this.#options.tokenLifeSeconds ?? 300);
    return this.issuer.token(identity, { expiresAt, ...options });
  }

  /** Asks a director, dials the cell it names and proves. */
  async seat(identity = newIdentity(), extra: Record<string, unknown> = {}): Promise<Seated> {
    const token = await this.token(identity);
    const grant = await assign(this.director.origin, token, identity, extra);
    const host = await this.dial(identity, grant, { token });
    return { identity, grant, host };
  }

  seatIn(preferredRegion: string): Promise<Seated> {
    return this.seat(newIdentity(), { preferredRegion });
  }

  /** Dials the cell of a grant. */
  async dial(identity: HostIdentity, grant: Grant, dial: Partial<HostDial> = {}): Promise<RawHost> {
    const token = dial.token ?? (await this.token(identity));
    const now = () => this.clock.wallNow();
    const options = { origin: grant.cellUrl, epoch: grant.assignmentEpoch, now, ...dial, token };
    const host = await RawHost.connect(identity, options);
    this.#hosts.push(host);
    return host;
  }

  /**
   * Lets time pass for cells, directors and database together, in steps short enough for peers to answer between. The time
   * that a slow machine takes over it is part of what passes.
   */
  async advance(ms: number, stepMs = 5_000): Promise<void> {
    const end = this.clock.now() + ms;
    for (;;) {
      const step = Math.min(end - this.clock.now(), stepMs);
      if (step <= 0) return;
      await this.database.advanceClock(step);
      await this.#advanceClock(step);
      await new Promise((resolve) => setTimeout(resolve, 40));
    }
  }

  /** Half the shortest deadline of a peer at a time, so that one that answers at once is always in time. */
  async #advanceClock(ms: number): Promise<void> {
    const stepMs = LIMITS.firstFrameDeadlineMs / 2;
    for (let left = ms; left > 0; left -= stepMs) {
      this.clock.jump(Math.min(left, stepMs));
      for (let turns = 2; turns > 0; turns -= 1) await new Promise((resolve) => setImmediate(resolve));
    }
  }

  async leases(identity: HostIdentity): Promise<Record<string, unknown>[]> {
    return this.database.query(
      `select cell_id, epoch::int, generation::int, state, units from relay.lease
       where user_id = $1 and relay_host_id = $2 order by cell_id`,
      [identity.userId, identity.relayHostId],
    );
  }

  /**
   * Writes a move as the decision functions do: forced ends the host's lease at once, otherwise it retires in 60 s.
   * Answers what the director grants next.
   */
  async move({ identity, grant }: Pick<Seated, 'identity' | 'grant'>, to: Node, forced: boolean): Promise<Grant> {
    const from = this.cellAt(grant.cellUrl).id;
    const host = [identity.userId, identity.relayHostId];
    await this.database.query(
      `with gone as (
         delete from relay.lease where user_id = $1 and relay_host_id = $2 and $5
       ), retiring as (
         update relay.lease set state = 'retiring', retire_until = relay.now() + interval '60 s'
         where user_id = $1 and relay_host_id = $2 and not $5
       ), moved as (
         update relay.assignment set cell_id = $4, epoch = epoch + 1 where user_id = $1 and relay_host_id = $2
         returning epoch
       )
       insert into relay.change (kind, from_cell, to_cell, user_id, relay_host_id, epoch, rule, detail, at)
       select 'moved', $3, $4, $1, $2, epoch, 'by-hand', jsonb_build_object('forced', $5::bool, 'retire_until',
         case when not $5 then (extract(epoch from relay.now() + interval '60 s') * 1000)::bigint end), relay.now()
       from moved`,
      [...host, from, to.id, forced],
    );
    await this.advance(6_000);
    return assign(this.director.origin, await this.token(identity), identity);
  }

  /** Where an invite stands: available, reserved, cooldown, expired, invalidated or consumed. */
  async inviteState(inviteToken: string): Promise<unknown> {
    const text = 'select relay.invite_state(i, relay.now()) as state from relay.invite i where token_hash = $1';
    return (await this.database.query(text, [hashOf(inviteToken)]))[0]?.state;
  }

  /** What a cell counts as in use: physical, in flight and reserved units. */
  async units(cell: Node): Promise<number> {
    return total(await scrape(cell.origin), 'orca_relay_cell_units');
  }

  /** What the relay sent that the wire does not allow, over all hosts of this fleet. */
  problems(): string[] {
    return this.#hosts.flatMap((host) => host.problems);
  }

  async stop(): Promise<void> {
    for (const host of this.#hosts) host.peer.drop();
    await Promise.all([...new Set([...this.directors, ...this.cells])].map((node) => node.stop()));
    await this.issuer.stop();
    if (this.#ownsDatabase) await this.database.drop();
  }
}

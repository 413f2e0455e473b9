import { randomBytes, randomUUID } from 'node:crypto';
import { expect } from 'vitest';
import { hashToken, newToken } from '../../contract/credentials.ts';
import type { Clock } from '../../server/clock.ts';
import { readConfig } from '../../server/config.ts';
import { type RunningProcess, startProcess } from '../../server/run.ts';
import type { FreshDatabase } from './database.ts';
import { eventually } from './eventually.ts';
import type { KeyServer } from './key-server.ts';

export const SIGNING_KEY = 'a signing key of thirty-two bytes or more';

export interface DirectorOptions {
  keys?: KeyServer;
  clock?: Clock;
  env?: Record<string, string>;
  /** Where the director finds the database, when not directly. */
  through?: (url: string) => string;
}

export function startDirector(database: FreshDatabase, options: DirectorOptions = {}): Promise<RunningProcess> {
  const { keys, clock, env, through } = options;
  const url = database.urlFor('relay_director');
  const config = readConfig({
    ORCA_RELAY_ROLE: 'director',
    PORT: '0',
    ORCA_RELAY_HOST: '127.0.0.1',
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: SIGNING_KEY,
    DATABASE_URL: through ? through(url) : url,
    ORCA_RELAY_LOG_LEVEL: 'silent',
    ...(keys ? { ORCA_RELAY_AUTH_ISSUER: keys.issuer, ORCA_RELAY_JWKS_URL: keys.jwksUrl } : {}),
    ...env,
  });
  return startProcess(config, clock ? { clock } : {});
}

/** Resolves once it has read where the log of changes ends: what happens from then on, its readers are told. */
export async function followsLog({ metrics }: RunningProcess): Promise<void> {
  await eventually(async () => {
    const lastRead = await metrics.registry.getSingleMetric('orca_relay_change_last_read_timestamp_seconds')?.get();
    expect(lastRead?.values).toContainEqual(expect.objectContaining({ labels: { reader: 'director' } }));
  });
}

/** A cell as Postgres knows it: registered, and heard from when it beats. No process stands behind it. */
export interface KnownCell {
  id: string;
  url: string;
  incarnation: string;
  beat(ready?: boolean): Promise<void>;
}

export async function knownCell(
  database: FreshDatabase,
  id: string,
  options: { region?: string; capacity?: number; hardCap?: number } = {},
): Promise<KnownCell> {
  const region = options.region ?? 'us-central1';
  const url = `https://${id}.example.test`;
  const incarnation = randomUUID();
  const startedAt = new Date(await database.now());
  const limit = options.hardCap ?? null;
  await database.query('select relay_v1.register_cell($1, $2, $3, $4, $5, $6)', [
    id,
    url,
    region,
    options.capacity ?? 900,
    limit,
    limit === null ? null : 60,
  ]);
  let watermark = 0;
  const cell: KnownCell = {
    id,
    url,
    incarnation,
    async beat(ready = true) {
      watermark += 1;
      const counts = { total_connections: 0, in_flight_connections: 0, reserved_units: 0 };
      const load = {
        enforced_units: 0,
        inclusion_watermark: watermark,
        ...(limit === null ? {} : { ...counts, hard_cap: limit, unobserved_bound: 60 }),
      };
      const [row] = await database.query<{ answer: string }>(
        'select relay_v1.heartbeat($1, $2, $3, $4, $5, $6, $7) as answer',
        [id, url, region, incarnation, startedAt, ready, JSON.stringify(load)],
      );
      if (row?.answer !== 'ok') throw new Error(`heartbeat of ${id}: ${row?.answer}`);
    },
  };
  await cell.beat();
  return cell;
}

/** A host id that nobody has used. */
export function newHostId(): string {
  return randomBytes(12).toString('base64url');
}

/** A resume token that Postgres accepts for this host. */
export async function installedToken(database: FreshDatabase, relayHostId: string, userId = 'user-1'): Promise<string> {
  const token = newToken();
  await database.query(
    `insert into relay.device (user_id, relay_host_id, relay_device_id, current_hash, version, resume_expires_at, installed_at)
     values ($1, $2, $3, $4, 1, relay.now() + interval '30 days', relay.now())`,
    [userId, relayHostId, randomUUID(), hashToken(token)],
  );
  return token;
}

/** An invite for this host, made as its cell makes it. */
export async function madeInvite(
  database: FreshDatabase,
  cell: KnownCell,
  relayHostId: string,
  userId = 'user-1',
): Promise<string> {
  const token = newToken();
  await database.query('select relay_v1.create_invite($1, $2, $3, $4, $5, $6)', [
    userId,
    relayHostId,
    cell.id,
    cell.incarnation,
    randomUUID(),
    hashToken(token),
  ]);
  return token;
}

export interface Answer {
  status: number;
  // biome-ignore lint/suspicious/noExplicitAny: bodies of many shapes, each judged by its test
  body: any;
  retryAfter: number | null;
  headers: Headers;
}

export async function post(
  url: string,
  body: unknown,
  options: { token?: string; signal?: AbortSignal; headers?: Record<string, string> } = {},
): Promise<Answer> {
  const response = await fetch(url, {
    method: 'POST',
    headers: {
      'content-type': 'application/json',
      ...(options.token === undefined ? {} : { authorization: `Bearer ${options.token}` }),
      ...options.headers,
    },
    body: typeof body === 'string' || body instanceof Uint8Array ? (body as string) : JSON.stringify(body),
    ...(options.signal ? { signal: options.signal } : {}),
  });
  const retryAfter = response.headers.get('retry-after');
  return {
    status: response.status,
    body: await response.json(),
    retryAfter: retryAfter === null ? null : Number(retryAfter),
    headers: response.headers,
  };
}

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { ConfigError, type Environment, readConfig, VARIABLE_NAMES } from '../../server/config.ts';
import { packageRoot } from '../../server/package-root.ts';

const needed = {
  ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'k'.repeat(32),
  DATABASE_URL: 'postgres://orca:secret-word@db.example/relay',
};

function problem(env: Environment): string {
  try {
    readConfig({ ...needed, ...env });
  } catch (error) {
    expect(error).toBeInstanceOf(ConfigError);
    return (error as Error).message;
  }
  throw new Error('was accepted');
}

test('only the signing key and the database have no default', () => {
  expect(readConfig(needed)).toMatchObject({
    role: 'combined',
    port: 8080,
    cellId: 'combined',
    region: 'us-central1',
    cellCapacity: 900,
    connectionLimit: null,
    auth: null,
    selfHostedKey: null,
    poolMax: 10,
    lanes: {
      placement: { concurrency: 2, queueMax: 4_096, waitMs: 4000, retryAfterSeconds: 5 },
      sticky: { concurrency: 1, queueMax: 4_096, waitMs: 2000, retryAfterSeconds: 2 },
    },
    readinessGraceMs: { jwks: 900_000, sql: 180_000 },
    metricsKey: null,
  });
  expect(readConfig({ ...needed, ORCA_RELAY_ROLE: 'director' }).poolMax).toBe(3);
});

test('a region is a name, not one of a fixed list; an empty value is none', () => {
  expect(readConfig({ ...needed, ORCA_RELAY_REGION: 'mars-north1', PORT: '' })).toMatchObject({
    region: 'mars-north1',
    port: 8080,
  });
});

const bad: Record<string, string[]> = {
  ORCA_RELAY_ROLE: ['directors', 'CELL'],
  PORT: ['http', '-1', '65536', '80.5', ' 80', '1e3'],
  ORCA_RELAY_PUBLIC_URL: [
    'relay.example.com',
    'http://relay.example.com',
    'https://relay.example.com/',
    'ws://127.0.0.1',
  ],
  ORCA_RELAY_CELL_URL: ['https://cell.example.com/x', 'https://CELL.example.com'],
  ORCA_RELAY_CELL_ID: ['x'.repeat(129)],
  ORCA_RELAY_REGION: ['US', 'a b'],
  ORCA_RELAY_CELL_CAPACITY: ['0', '100001', 'many'],
  ORCA_RELAY_JWKS_URL: ['http://keys.example.com', 'keys'],
  ORCA_RELAY_DATABASE_POOL_MAX: ['0', '101'],
  ORCA_RELAY_READINESS_SQL_GRACE_MS: ['3600001', '-5'],
  ORCA_RELAY_PUBLIC_ASSIGNMENTS_ENABLED: ['yes', '1'],
  ORCA_RELAY_LOG_LEVEL: ['loud'],
  ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: ['short'],
  ORCA_RELAY_SELF_HOSTED_KEY: ['short', `${'x'.repeat(32)}!`],
  ORCA_RELAY_METRICS_KEY: ['short', 'with a space in it'],
  DATABASE_URL: ['mysql://secret-word@db/x', 'localhost'],
};

describe('a bad value is one line that names the variable', () => {
  for (const [name, values] of Object.entries(bad)) {
    test.each(values)(`${name}=%s`, (value) => {
      const line = problem({ [name]: value });
      expect(line).toMatch(new RegExp(`^${name} takes `));
      expect(line).not.toContain('\n');
    });
  }

  test('and says what it held, unless that is a secret', () => {
    expect(problem({ PORT: 'http' })).toContain('not "http"');
    expect(problem({ DATABASE_URL: 'mysql://secret-word@db/x' })).not.toContain('secret-word');
    expect(problem({ ORCA_RELAY_SELF_HOSTED_KEY: 'hush' })).not.toContain('hush');
  });

  test('a value that is missing says what it takes', () => {
    expect(problem({ ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: undefined })).toBe(
      'ORCA_RELAY_ASSIGNMENT_SIGNING_KEY is not set: it takes a secret of at least 32 bytes, the same on every director and cell',
    );
  });
});

test('the README has every variable', () => {
  const readme = readFileSync(path.join(packageRoot, 'README.md'), 'utf8');
  const named = (name: string) =>
    readme.includes(`\`${name}\``) ||
    // a lane's four stand in one line: the first in full, the others by their ends
    readme.includes(`${name.replace(/_(?:QUEUE_MAX|WAIT_MS|RETRY_AFTER_SECONDS)$/, '')}_CONCURRENCY`);
  expect(VARIABLE_NAMES.filter((name) => !named(name))).toEqual([]);
});

describe('values that belong together', () => {
  test('hard cap and unobserved bound come both or not at all', () => {
    const hardCap = { ORCA_RELAY_CELL_CONNECTION_HARD_CAP: '600' };
    expect(problem(hardCap)).toMatch(/both or neither/);
    expect(problem({ ...hardCap, ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND: '500' })).toMatch(/at most 499/);
    const both = { ...hardCap, ORCA_RELAY_CELL_CONNECTION_UNOBSERVED_BOUND: '60' };
    expect(readConfig({ ...needed, ...both }).connectionLimit).toEqual({ hardCap: 600, unobservedBound: 60 });
  });

  test('issuer and key set come both or not at all', () => {
    expect(problem({ ORCA_RELAY_AUTH_ISSUER: 'https://auth.example' })).toMatch(/both or neither/);
  });

  test('the lanes fit the pool', () => {
    const crowded = { ORCA_RELAY_ROLE: 'director', ORCA_RELAY_PUBLIC_ASSIGNMENT_CONCURRENCY: '3' };
    expect(problem(crowded)).toMatch(/^ORCA_RELAY_DATABASE_POOL_MAX takes at least 4/);
    expect(readConfig({ ...needed, ...crowded, ORCA_RELAY_ROLE: 'cell' }).role).toBe('cell');
  });
});

import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { freePort, runCli } from '../acceptance/support/fleet.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database?.drop());

async function goodEnv(): Promise<Record<string, string>> {
  return {
    PORT: String(await freePort()),
    ORCA_RELAY_HOST: '127.0.0.1',
    ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: randomBytes(32).toString('base64url'),
    DATABASE_URL: database.urlFor('relay_director'),
  };
}

/** Runs a command that must fail: its exit code, and the lines it has for a person. */
async function failure(args: string[], env: Record<string, string>): Promise<{ code: number | null; lines: string[] }> {
  const child = runCli(args, env);
  const timer = setTimeout(() => child.signal('SIGKILL'), 60_000);
  const { code } = await child.exited;
  clearTimeout(timer);
  const lines = child
    .errors()
    .split('\n')
    .filter((line) => line.trim() !== '');
  return { code, lines };
}

async function failsWith(args: string[], env: Record<string, string>, says: RegExp): Promise<void> {
  const { code, lines } = await failure(args, env);
  expect(code, lines.join('\n')).toBeGreaterThan(0);
  expect(lines.length, lines.join('\n')).toBe(1);
  expect(lines[0]).toMatch(says);
}

describe('a start that cannot be: one clear line and an exit code', () => {
  test('the port is in use', async () => {
    const blocker = createServer();
    await new Promise<void>((resolve) => blocker.listen(0, '127.0.0.1', resolve));
    const { port } = blocker.address() as { port: number };
    await failsWith(['director'], { ...(await goodEnv()), PORT: String(port) }, new RegExp(`${port}.*in use`));
    blocker.close();
  });

  test('no signing key, or too short a one', async () => {
    const { ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: _key, ...without } = await goodEnv();
    await failsWith(['director'], without, /ORCA_RELAY_ASSIGNMENT_SIGNING_KEY/);
    const short = { ...without, ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'short' };
    await failsWith(['cell'], short, /ORCA_RELAY_ASSIGNMENT_SIGNING_KEY.*32/);
  });

  test.each([
    ['ORCA_RELAY_PUBLIC_URL', 'http://example.com'],
    ['ORCA_RELAY_ROLE', 'boss'],
  ])('%s is %s', async (name, value) => {
    await failsWith([], { ...(await goodEnv()), [name]: value }, new RegExp(name));
  });

  test('the database refuses the password', async () => {
    const url = new URL(database.urlFor('relay_director'));
    url.password = 'not-the-password';
    const { code, lines } = await failure(['director'], { ...(await goodEnv()), DATABASE_URL: url.href });
    expect(code).toBeGreaterThan(0);
    expect(lines.length).toBe(1);
    expect(lines[0]).not.toContain('not-the-password');
  });

  test('the database is of a newer version, or has none', async () => {
    const newer = await freshDatabase();
    await newer.query(
      `create or replace function relay_v1.schema_version() returns int language sql as 'select 999999'`,
    );
    await failsWith(
      ['director'],
      { ...(await goodEnv()), DATABASE_URL: newer.urlFor('relay_director') },
      /newer|version/i,
    );
    await newer.drop();
    const url = new URL(database.url);
    url.pathname = '/postgres';
    await failsWith(['cell'], { ...(await goodEnv()), DATABASE_URL: url.href }, /migrate/);
  });

  test('the data folder cannot be written', async () => {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'orca-relay-readonly-'));
    const file = path.join(folder, 'not-a-folder');
    writeFileSync(file, '');
    await failsWith(['up'], { ORCA_RELAY_DATA_DIR: path.join(file, 'data') }, /not-a-folder/);
    rmSync(folder, { recursive: true });
  });

  test('an unknown command', async () => {
    const { code } = await failure(['fly'], await goodEnv());
    expect(code).toBeGreaterThan(0);
  });
});

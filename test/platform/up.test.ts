import { spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { temporaryDataDir } from '../../server/dev/postgres.ts';
import { isAlive, readPostmaster } from '../../server/dev/postgres-orphan.ts';
import { findUp } from '../../server/dev/up-state.ts';
import { type CliRun, cli, cliEnd, freePorts } from '../support/cli.ts';

const dataDir = temporaryDataDir();
const env = { ORCA_RELAY_DATA_DIR: dataDir };
/** Seconds, on a machine that does other things too. */
const PATIENCE = { timeout: 40_000, interval: 100 };
let port: number;
let up: CliRun;

async function start(): Promise<CliRun> {
  const run = cli(['up', '--port', String(port)], env);
  const ended = run.ended.then(() => Promise.reject(new Error(run.stdout() + run.stderr())));
  const shown = vi.waitFor(() => expect(run.stdout()).toContain('is up after'), PATIENCE);
  await Promise.race([shown, ended]);
  ended.catch(() => undefined);
  return run;
}

const origin = (index: number) => `http://127.0.0.1:${port + index}`;
const isHealthy = (index: number) =>
  fetch(`${origin(index)}/health`).then(
    (reply) => reply.ok,
    () => false,
  );
const sql = async (text: string): Promise<Record<string, string>[]> => {
  const { stdout, stderr, code } = await cliEnd(['sql', '--json', text], env);
  if (code !== 0) throw new Error(stderr);
  return stdout
    .trim()
    .split('\n')
    .filter(Boolean)
    .map((line) => JSON.parse(line));
};
/** The process that `up` runs with this command. */
function childOf(parent: number, command: string): number {
  const { stdout } = spawnSync('ps', ['-axo', 'pid=,ppid=,args='], { encoding: 'utf8' });
  const lines = stdout.split('\n').map((line) => line.trim().split(/\s+/));
  return Number(lines.find(([, ppid, ...args]) => ppid === String(parent) && args.at(-1) === command)?.[0] ?? 0);
}

function postgresPid(): number {
  const cluster = readdirSync(dataDir).find((name) => /^postgres-\d+$/.test(name)) as string;
  return (readPostmaster(path.join(dataDir, cluster)) as { pid: number }).pid;
}

async function childrenOfUp(): Promise<number[]> {
  const found = () => ['director', 'cell'].map((command) => childOf(up.pid, command));
  await expect.poll(found, PATIENCE).not.toContain(0);
  return found();
}

async function isBack(index: number, command: string, former: number): Promise<void> {
  await expect.poll(() => ![0, former].includes(childOf(up.pid, command)), PATIENCE).toBe(true);
  await expect.poll(() => isHealthy(index), PATIENCE).toBe(true);
}

beforeAll(async () => {
  port = await freePorts(3);
  up = await start();
});
afterAll(async () => {
  up.kill('SIGINT');
  await up.ended;
  rmSync(dataDir, { recursive: true, force: true });
});

test('shows what it started, where, and what to try next', () => {
  const shown = up.stdout();
  for (const index of [0, 1, 2]) expect(shown).toContain(origin(index));
  expect(shown).toMatch(/postgres +PostgreSQL \d+ \(\w+\) on 127\.0\.0\.1:\d+, data in /);
  expect(shown).toContain('npx orca-relay demo');
  expect(shown).not.toMatch(/postgres:\/\/|secret|password/i);
});

test('sql finds it, and is the operator there', async () => {
  expect(await sql('select cell_id, live from relay_v1.fleet')).toEqual([
    { cell_id: 'cell-1', live: 't' },
    { cell_id: 'cell-2', live: 't' },
  ]);
  const logins = await sql("select distinct usename from pg_stat_activity where application_name like 'orca-relay/%'");
  expect(logins.map(({ usename }) => usename?.replace(/_[0-9a-f]{8}$/, '')).sort()).toEqual([
    'orca_cell',
    'orca_director',
    'orca_operator',
  ]);
});

test('a second one on the same folder is told of the first', async () => {
  const { code, stderr } = await cliEnd(['up', '--port', String(await freePorts(3))], env);
  expect(code).toBe(1);
  expect(stderr).toBe(
    `orca-relay: another orca-relay (process ${up.pid}) runs on ${dataDir}: stop it, or set ORCA_RELAY_DATA_DIR to another folder\n`,
  );
});

test('a port in use is one line', async () => {
  const taken = await freePorts(3);
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(taken + 1, '127.0.0.1', resolve));
  const elsewhere = temporaryDataDir();
  const { code, stderr } = await cliEnd(['up', '--port', String(taken)], { ORCA_RELAY_DATA_DIR: elsewhere });
  other.close();
  rmSync(elsewhere, { recursive: true });
  expect([code, stderr]).toEqual([1, `orca-relay: port ${taken + 1} is in use: choose other ports with --port\n`]);
});

test.each([
  [0, 'director'],
  [1, 'cell'],
])('kill -9 of child %i, a %s: it is started again, the others go on', async (index, command) => {
  const former = childOf(up.pid, command);
  process.kill(former, 'SIGKILL');
  await isBack(index, command, former);
  expect(up.stdout()).toMatch(/ended \(SIGKILL\); it is started again/);
});

test('kill -9 of Postgres: it is started again where it was, and everything finds it', async () => {
  process.kill(postgresPid(), 'SIGKILL');
  await expect.poll(up.stdout, PATIENCE).toContain('Postgres had ended; it is started again on the same port');
  await expect.poll(() => sql('select 1 as one').catch(() => []), PATIENCE).toEqual([{ one: '1' }]);
});

test('kill -9 of up itself: its processes end, Postgres is taken over by the next', async () => {
  const children = await childrenOfUp();
  up.kill('SIGKILL');
  await up.ended;
  up = await start();
  expect(children.map(isAlive)).toEqual([false, false]);
  expect(up.stdout()).toContain('(taken over from an earlier run)');
});

test('Ctrl-C stops all of it', async () => {
  const children = await childrenOfUp();
  const postgres = postgresPid();
  up.kill('SIGINT');
  expect(await up.ended).toEqual({ code: 0, signal: null });
  expect([...children, postgres].map(isAlive)).toEqual([false, false, false]);
  expect(up.stderr()).toBe('');
  expect(findUp(dataDir)).toBeNull();
});

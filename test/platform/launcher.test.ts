import { type ChildProcess, spawn } from 'node:child_process';
import { chmodSync, mkdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import pg from 'pg';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ensureDatabase, type RunningPostgres, startPostgres, temporaryDataDir } from '../../server/dev/postgres.ts';
import { isAlive, pidFile, readPostmaster, servesFolder } from '../../server/dev/postgres-orphan.ts';
import { serverUser } from '../../server/dev/postgres-user.ts';

let dataDir: string;
let server: RunningPostgres;
const start = (durable = false) => startPostgres({ dataDir, durable });

async function setting(name: string): Promise<unknown> {
  const client = new pg.Client({ connectionString: server.url() });
  await client.connect();
  const { rows } = await client.query(`show ${name}`);
  await client.end();
  return rows[0]?.[name];
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 10));
}

beforeAll(async () => {
  dataDir = temporaryDataDir();
  server = await start();
});
afterAll(async () => {
  await server.stop();
  rmSync(dataDir, { recursive: true, force: true });
});

test('a first start makes a cluster for the server alone, and a password for us alone', () => {
  expect(server.adopted).toBe(false);
  expect(server.description).toMatch(/^PostgreSQL \d+ \((embedded|system)\) on 127\.0\.0\.1:\d+$/);
  expect(statSync(server.dataFolder).mode & 0o777).toBe(0o700);
  expect(statSync(`${server.dataFolder}.password`).mode & 0o777).toBe(0o600);
  expect(statSync(server.dataFolder).uid).toBe(serverUser().ids.uid ?? process.getuid?.());
});

describe('scram', () => {
  test.each(['wrong', ''])('the password %j is refused', async (password) => {
    const url = new URL(server.url());
    url.password = password;
    const client = new pg.Client({ connectionString: url.href });
    await expect(client.connect()).rejects.toThrow(/password/);
  });

  test('every line of pg_hba.conf asks for it', () => {
    const lines = readFileSync(path.join(server.dataFolder, 'pg_hba.conf'), 'utf8').split('\n');
    const methods = lines.filter((line) => /^(local|host)/.test(line)).map((line) => line.trim().split(/\s+/).at(-1));
    expect(new Set(methods)).toEqual(new Set(['scram-sha-256']));
  });
});

test('a throwaway server does without fsync, a durable one does not', async () => {
  expect(await setting('fsync')).toBe('off');
  await server.stop();
  server = await start(true);
  expect(await setting('fsync')).toBe('on');
  expect(await setting('synchronous_commit')).toBe('on');
});

test('a database is made once', async () => {
  const url = await ensureDatabase(server, 'twice');
  expect(await ensureDatabase(server, 'twice')).toBe(url);
});

describe('what an earlier run left behind', () => {
  test('a live orphan is taken over', async () => {
    const again = await start();
    expect(again).toMatchObject({ adopted: true, pid: server.pid });
    expect(again.url()).toBe(server.url());
  });

  test('and can be stopped by who took it over', async () => {
    const again = await start();
    await again.stop();
    await until(() => !isAlive(server.pid));
    server = await start();
    expect(server.adopted).toBe(false);
  });

  test('a live orphan that does not let us in is stopped', async () => {
    const former = server.pid;
    const file = `${server.dataFolder}.password`;
    const password = readFileSync(file, 'utf8');
    writeFileSync(file, 'not-the-password');
    const other = await start();
    expect(other.adopted).toBe(false);
    expect(other.pid).not.toBe(former);
    await other.stop();
    writeFileSync(file, password);
    server = await start();
  });

  test('the lock file of a killed server is no obstacle', async () => {
    process.kill(server.pid, 'SIGKILL');
    await until(() => !isAlive(server.pid));
    expect(readPostmaster(server.dataFolder)?.pid).toBe(server.pid);
    server = await start();
    expect(server.adopted).toBe(false);
  });

  test('nor is one whose process number a stranger holds now', async () => {
    await server.stop();
    const stranger: ChildProcess = spawn('sleep', ['60'], { ...serverUser().ids, stdio: 'ignore' });
    const lock = `${stranger.pid}\n${server.dataFolder}\n1700000000\n5432\n\n127.0.0.1\n 1 1\nready   \n`;
    writeFileSync(pidFile(server.dataFolder), lock);
    expect(servesFolder(stranger.pid as number, server.dataFolder)).toBe(false);
    server = await start();
    expect(server.adopted).toBe(false);
    expect(isAlive(stranger.pid as number)).toBe(true);
    stranger.kill();
  });
});

describe('one clear line', () => {
  test('for a folder of something else', async () => {
    const other = temporaryDataDir();
    const folder = path.join(other, path.basename(server.dataFolder));
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'holiday.jpg'), '');
    await expect(startPostgres({ dataDir: other, durable: false })).rejects.toThrow(
      `${folder} holds files but no database: empty it, or set ORCA_RELAY_DATA_DIR`,
    );
    rmSync(other, { recursive: true });
  });

  test('for a folder that cannot be written', async () => {
    const file = path.join(dataDir, 'a-file');
    writeFileSync(file, '');
    const inside = path.join(file, 'data');
    await expect(startPostgres({ dataDir: inside, durable: false })).rejects.toThrow(
      `cannot write the data folder ${inside} (ENOTDIR): set ORCA_RELAY_DATA_DIR to a folder that can be written`,
    );
  });

  test('for a lost password', async () => {
    const file = `${server.dataFolder}.password`;
    renameSync(file, `${file}.away`);
    await expect(start()).rejects.toThrow(/^the password of the database in .* cannot be read \(ENOENT: /);
    renameSync(`${file}.away`, file);
  });

  test('for a cluster that is damaged, with the place of the whole story', async () => {
    await server.stop();
    const config = path.join(server.dataFolder, 'postgresql.conf');
    const text = readFileSync(config, 'utf8');
    writeFileSync(config, `${text}\nno_such_setting = 1\n`);
    await expect(start()).rejects.toThrow(
      /^PostgreSQL did not start on .*: configuration file .* contains errors \(see .*\.log\)$/,
    );
    writeFileSync(config, text);
    chmodSync(config, 0o600);
    server = await start();
  });
});

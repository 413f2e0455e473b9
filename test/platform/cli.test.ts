import { rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { temporaryDataDir } from '../../server/dev/postgres.ts';
import { packageVersion } from '../../server/package-root.ts';
import { cliEnd } from '../support/cli.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

const KEY = { ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'k'.repeat(32) };
let fresh: FreshDatabase;
beforeAll(async () => {
  fresh = await freshDatabase();
});
afterAll(() => fresh.drop());

describe('help', () => {
  test('says what each command is for', async () => {
    const { code, stdout } = await cliEnd(['--help']);
    expect(code).toBe(0);
    const forPeople = ['up', 'demo', 'sql', 'fleet', 'events', 'host', 'drain', 'mode', 'budget', 'drill', 'migrate'];
    for (const command of [...forPeople, 'director', 'cell', 'combined']) {
      expect(stdout).toMatch(new RegExp(`^  ${command}\\b.* {2,}\\w.+$`, 'm'));
    }
    expect(stdout).toContain('ORCA_RELAY_ROLE');
  });

  test('and the version', async () => {
    expect(await cliEnd(['--version'])).toEqual({ code: 0, stdout: `${packageVersion}\n`, stderr: '' });
  });
});

describe.concurrent('a mistake is one line on stderr and exit code 1', () => {
  const folder = temporaryDataDir();
  const notThere = path.join(folder, 'nothing');
  const file = path.join(folder, 'a-file');
  writeFileSync(file, '');
  afterAll(() => rmSync(folder, { recursive: true }));
  test.each<[string, string[], Record<string, string>, RegExp]>([
    ['an unknown command', ['fly'], {}, /^orca-relay: there is no command "fly": see orca-relay --help$/],
    ['an unknown option', ['up', '--fast'], {}, /^orca-relay: unknown option '--fast'$/],
    ['a port that is none', ['up', '--port', 'x'], {}, /^orca-relay: option .* takes a whole number from 1 to \d+\.$/],
    ['no key', ['cell'], {}, /^orca-relay: ORCA_RELAY_ASSIGNMENT_SIGNING_KEY is not set: /],
    ['a short key', ['cell'], { ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: 'short' }, /^orca-relay: ORCA_RELAY_ASSIGNMENT_/],
    ['no database', ['director'], KEY, /^orca-relay: DATABASE_URL is not set: it takes a postgres:\/\/ URL$/],
    ['a role that is none', [], { ORCA_RELAY_ROLE: 'queen' }, /^orca-relay: ORCA_RELAY_ROLE takes .*, not "queen"$/],
    ['a folder that cannot be written', ['up'], { ORCA_RELAY_DATA_DIR: path.join(file, 'x') }, /cannot write the data/],
    ['nothing to ask', ['sql', 'select 1'], { ORCA_RELAY_DATA_DIR: notThere }, /^orca-relay: no database: /],
    ['migrate without a database', ['migrate'], {}, /^orca-relay: DATABASE_URL is not set/],
  ])('%s', async (_, args, env, expected) => {
    const { code, stderr } = await cliEnd(args, env);
    expect(code).toBe(1);
    expect(stderr.trimEnd()).toMatch(expected);
    expect(stderr.trimEnd().split('\n')).toHaveLength(1);
  });
});

describe('without a command', () => {
  test.each(['director', 'cell', 'combined'])('ORCA_RELAY_ROLE=%s decides', async (role) => {
    // the schema is refused only after the role's configuration was read, and its log line names the role
    const env = {
      ...KEY,
      ORCA_RELAY_ROLE: role,
      DATABASE_URL: 'postgres://x:y@127.0.0.1:1/z',
      ORCA_RELAY_DATABASE_POOL_MAX: '2',
    };
    const { code, stderr } = await cliEnd([], env);
    expect(code).toBe(1);
    expect(stderr).toMatch(
      role === 'cell' ? /cannot be reached/ : /^orca-relay: ORCA_RELAY_DATABASE_POOL_MAX takes at least 3/,
    );
  });
});

describe('sql', () => {
  const sql = (...args: string[]) => cliEnd(['sql', ...args], { DATABASE_URL: fresh.urlFor('relay_operator') });

  test('prints a table, and nothing for null', async () => {
    const { code, stdout } = await sql("select 7 as answer, null as missing, 'two words' as text");
    expect(code).toBe(0);
    expect(stdout).toMatch(/│ answer │ missing │ text +│/);
    expect(stdout).toMatch(/│ 7 +│ +│ two words │/);
    expect(stdout).toContain('(1 row)');
  });

  test('prints a JSON object a row when asked', async () => {
    const { stdout } = await sql('--json', 'select n, null as x from generate_series(1, 2) n');
    expect(stdout).toBe('{"n":"1","x":null}\n{"n":"2","x":null}\n');
  });

  test('runs as the operator role, also for a login that may do more', async () => {
    const owner = { DATABASE_URL: fresh.url };
    expect((await cliEnd(['sql', '--json', 'select current_user as who'], owner)).stdout).toBe(
      '{"who":"relay_operator"}\n',
    );
    const { code, stderr } = await cliEnd(['sql', 'select * from relay.cell'], owner);
    expect([code, stderr]).toEqual([1, 'orca-relay: permission denied for schema relay [42501]\n']);
  });

  test('an operator function answers', async () => {
    const { stdout } = await sql("select relay_v1.register_cell('c-sql', 'https://c.example', 'us-central1', 9)");
    expect(stdout).toMatch(/│ ok +│/);
  });

  test("an error is the server's, in one line, with its place", async () => {
    expect(await sql('select 1;\n\nselect nothing')).toEqual({
      code: 1,
      stdout: '',
      stderr: 'orca-relay: column "nothing" does not exist at line 3 [42703]\n',
    });
  });

  test('a login without the right is refused', async () => {
    const { code, stderr } = await cliEnd(['sql', 'select 1'], { DATABASE_URL: fresh.urlFor('relay_cell') });
    expect(code).toBe(1);
    expect(stderr).toMatch(/^orca-relay: the database of DATABASE_URL refuses: permission denied to set role/);
  });
});

import { afterAll, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import { type CliRun, cli, cliEnd } from '../support/cli.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { type KnownCell, knownCell } from '../support/director.ts';

/** `orca-relay fleet`, `drain`, `mode` and `budget` as a script or a person types them, without a terminal. */

let database: FreshDatabase;
let env: Record<string, string>;
let cells: KnownCell[];
const answer = async (text: string) =>
  (await database.query<{ answer: string }>(`select ${text} as answer`))[0]?.answer;

beforeAll(async () => {
  database = await freshDatabase();
  env = { DATABASE_URL: database.urlFor('relay_operator') };
});
afterAll(() => database?.drop());
beforeEach(async () => {
  await database.query('delete from relay.lease');
  await database.query(
    "update relay.cell set admission = 'general', drain_incarnation = null, drain_grace_ms = null, drain_pace_ms = null, drain_ordered_at = null, drain_hosts = null",
  );
  cells ??= [
    await knownCell(database, 'near-1', { capacity: 100 }),
    await knownCell(database, 'near-2', { hardCap: 300 }),
  ];
  for (const cell of cells) await cell.beat();
});

/** Hosts that are seated on the first cell. */
async function seat(count: number): Promise<string[]> {
  const hosts = Array.from({ length: count }, (_, n) => `seated-host-${n}`);
  await database.query("update relay.cell set admission = 'existing-only' where cell_id = 'near-2'");
  for (const host of hosts) {
    const [seated] = await database.query<{ epoch: number }>("select epoch from relay_v1.assign('user-1', $1)", [host]);
    await database.query("select relay_v1.activate_control('user-1', $1, 'near-1', $2, $3, 1, 1)", [
      host,
      cells[0]?.incarnation,
      seated?.epoch,
    ]);
  }
  await database.query("update relay.cell set admission = 'general' where cell_id = 'near-2'");
  return hosts;
}

/** What a host's leaving does. */
const leave = (host: string) =>
  database.query("delete from relay.lease where relay_host_id = $1 and cell_id = 'near-1'", [host]);

const saying = (run: CliRun, what: RegExp) =>
  vi.waitFor(() => expect(run.stdout()).toMatch(what), { timeout: 40_000, interval: 50 });

describe('orca-relay fleet', () => {
  test('prints a table, and one object a cell', async () => {
    const [table, json] = await Promise.all([cliEnd(['fleet'], env), cliEnd(['fleet', '--json'], env)]);
    expect(table.code).toBe(0);
    expect(table.stdout).toMatch(/region\s+│ cell\s+│ state/);
    expect(table.stdout).toMatch(/near-2 │ live\s+│ \d+ s\s+│ ░+ │ 0\/140\s+│ general\s+│ capped/);
    expect(table.stdout).toMatch(
      /2 of 2 cells live, 240 units free for hosts\nWhat directors' polls find is unknown: .*--director/,
    );
    const rows = json.stdout
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(rows).toMatchObject([
      { cell_id: 'near-1', state: 'live', load: 0, free_units: 100, drain_progress: null },
      { cell_id: 'near-2', capped: true },
    ]);
  });

  test('--watch goes on until Ctrl-C', async () => {
    const run = cli(['fleet', '--watch'], env);
    await saying(run, /cells live[\s\S]*cells live/);
    run.kill('SIGINT');
    expect(await run.ended).toEqual({ code: 130, signal: null });
    // no escape sequence of a terminal where there is none
    expect(run.stdout()).not.toContain('\u001b');
  });

  test('says in one line what is wrong', async () => {
    const gone = await cliEnd(['fleet'], { DATABASE_URL: 'postgres://nobody@127.0.0.1:1/none' });
    expect(gone.code).toBe(1);
    expect(gone.stderr).toMatch(/^orca-relay: [^\n]+\n$/);
  });
});

describe('orca-relay drain', () => {
  test('names the cells there are; refuses a general one with what to type; needs an operator', async () => {
    const [unknown, general, monitor] = await Promise.all([
      cliEnd(['drain', 'nowhere'], env),
      cliEnd(['drain', 'near-1'], env),
      cliEnd(['drain', 'near-1', '--admission', 'existing-only'], { DATABASE_URL: database.urlFor('relay_monitor') }),
    ]);
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      'orca-relay: there is no cell "nowhere"; there are near-1, near-2\n',
    ]);
    expect(general.code).toBe(1);
    expect(general.stderr).toContain('orca-relay drain near-1 --admission migration-only');
    expect(monitor.code).toBe(1);
    expect(await answer("(select admission from relay.cell where cell_id = 'near-1')")).toBe('general');
    expect(await answer('(select count(*)::int from relay_v1.drains)')).toBe(0);
  });

  test('says what will happen, orders it, and follows it until the cell is empty', async () => {
    const hosts = await seat(3);
    const run = cli(['drain', 'near-1', '--admission', 'migration-only', '--grace', '7', '--pace', '9'], env);
    await saying(run, /3 of 3 hosts left/);
    expect(run.stdout()).toMatch(
      /near-1 \(us-central1, live\) seats 3 hosts and has promised 0 more a seat: 3 units\./,
    );
    expect(run.stdout()).toMatch(/one by one over 9 s, and cuts what each still holds 7 s after/);
    expect(run.stdout()).toMatch(/room on 1 other cell: 140 units in us-central1, 0 elsewhere/);
    const [order] = await database.query(
      'select admission, drain_grace_ms, drain_pace_ms from relay.cell where cell_id = $1',
      ['near-1'],
    );
    expect(order).toEqual({ admission: 'migration-only', drain_grace_ms: 7_000, drain_pace_ms: 9_000 });
    for (const host of hosts) await leave(host);
    expect((await run.ended).code).toBe(0);
    expect(run.stdout()).toMatch(/near-1 is empty after \d+ s: nobody holds a seat there\.\n$/);
    expect(run.stdout()).not.toContain('\u001b');
  });

  test('Ctrl-C leaves it running; asked again it looks on; --cancel takes it back', async () => {
    await seat(2);
    const run = cli(['drain', 'near-1', '--admission', 'existing-only'], env);
    await saying(run, /2 of 2 hosts left/);
    run.kill('SIGINT');
    expect((await run.ended).code).toBe(130);
    expect(run.stdout()).toMatch(/near-1 goes on draining\. To look again: orca-relay drain near-1\n/);
    expect(await answer('(select count(*)::int from relay_v1.drains where current)')).toBe(1);

    const again = cli(['drain', 'near-1'], env);
    await saying(again, /was told to drain \d+ s ago; this only shows how far it is\.\n2 of 2 hosts left/);
    const cancelled = await cliEnd(['drain', 'near-1', '--cancel'], env);
    expect(cancelled.stdout).toContain('near-1 is no longer told to drain');
    expect(cancelled.stdout).toContain("set_admission('near-1', 'general')");
    expect((await again.ended).code).toBe(1);
    expect(again.stderr()).toBe('orca-relay: the drain of near-1 was taken back\n');
    const twice = await cliEnd(['drain', 'near-1', '--cancel'], env);
    expect(twice.stderr).toBe('orca-relay: the cell is not told to drain [drain_attempt_not_found]\n');
  });
});

describe('orca-relay mode', () => {
  const modeOf = () => answer("(select concat_ws(' ', admit_mode, flags) from relay.cell where cell_id = 'near-1')");

  test('has a risky way confirmed in words that name the cell, and says which', async () => {
    const [plain, other, rearm, glass, misplaced, unknown] = await Promise.all([
      cliEnd(['mode', 'near-1', 'reserve'], env),
      cliEnd(['mode', 'near-1', 'reserve', '--confirm', 'RESERVE near-2'], env),
      cliEnd(['mode', 'near-1', 'rearm'], env),
      cliEnd(['mode', 'near-1', 'db', '--break-glass'], env),
      cliEnd(['mode', 'near-1', 'reserve', '--break-glass'], env),
      cliEnd(['mode', 'near-1', 'both'], env),
    ]);
    for (const { code, stderr } of [plain, other])
      expect([code, stderr]).toEqual([
        1,
        'orca-relay: In reserve mode near-1 admits hosts without asking the database. Nothing was changed. ' +
          'To go on: orca-relay mode near-1 reserve --confirm "RESERVE near-1"\n',
      ]);
    expect(rearm.stderr).toMatch(/orca-relay mode near-1 rearm --confirm "RESERVE near-1"\n$/);
    expect(glass.stderr).toMatch(/orca-relay mode near-1 db --break-glass --confirm "BREAK GLASS near-1"\n$/);
    expect(misplaced.stderr).toBe('orca-relay: --break-glass is for db alone\n');
    expect(unknown.stderr).toMatch(/Allowed choices are reserve, db, rearm/);
    expect([rearm.code, glass.code, misplaced.code, unknown.code]).toEqual([1, 1, 1, 1]);
    expect(plain.stdout).toBe(
      'near-1 (us-central1, live) is recorded as db, its flags say db, its process says nothing; 0 hosts hold a lease with it.\n',
    );
    expect(await modeOf()).toBe('db {}');
  });

  test('warns while no director polls the cell, can be interrupted, and says how to go on', async () => {
    const run = cli(['mode', 'near-1', 'reserve', '--confirm', 'RESERVE near-1'], env);
    await saying(run, /recorded as reserve/);
    run.kill('SIGINT');
    expect(await run.ended).toEqual({ code: 130, signal: null });
    expect(run.stdout()).toMatch(
      /Interrupted; the cell stays as it is\. To go on: orca-relay mode near-1 reserve\nTo take it back: orca-relay mode near-1 db\n$/,
    );
    expect(run.stderr()).toBe(
      'orca-relay: warning: no director with reserve placement on polls cell near-1: nobody is booked there, and it falls back to db\n',
    );
    expect(await modeOf()).toBe('reserve {}');
    await database.query("update relay.cell set admit_mode = 'db'");
  });

  test('db on a cell that is there already says so; needs an operator, and a cell that there is', async () => {
    const [there, monitor, unknown] = await Promise.all([
      cliEnd(['mode', 'near-1', 'db'], env),
      cliEnd(['mode', 'near-1', 'db'], { DATABASE_URL: database.urlFor('relay_monitor') }),
      cliEnd(['mode', 'nowhere', 'db'], env),
    ]);
    expect([there.code, there.stdout.split('\n')[1]]).toEqual([0, 'near-1 is in db mode']);
    expect(monitor.code).toBe(1);
    expect([unknown.code, unknown.stderr]).toEqual([
      1,
      'orca-relay: there is no cell "nowhere"; there are near-1, near-2\n',
    ]);
  });
});

describe('orca-relay budget', () => {
  const fleet = [
    '--pool',
    'us-central1=16',
    '--pool',
    'near-2=20:12',
    '--directors',
    '5',
    '--auth',
    '20',
    '--api',
    '50',
  ];

  test('B1, B3: adds up what is registered and what is said, and fails when it does not fit', async () => {
    const [fits, json, over, bad] = await Promise.all([
      cliEnd(['budget', ...fleet, '--max-connections', '500'], env),
      cliEnd(['budget', '--json'], env),
      cliEnd(['budget', ...fleet, '--max-connections', '200'], env),
      cliEnd(['budget', '--pool', 'near-2'], env),
    ]);
    expect([fits.code, fits.stderr]).toEqual([0, '']);
    expect(fits.stdout).toBe(
      [
        'cells            38',
        'directors        20',
        'auth             20',
        'api              50',
        'configured      128',
        'replacements     70  while one kind of process runs twice',
        'maintenance       5',
        'operating       203',
        'usable          490  500 of the server, less 10 in reserve',
        'spare           287',
        fits.stdout.trimEnd().split('\n').at(-1),
        '',
      ].join('\n'),
    );
    expect(fits.stdout).toMatch(/\nin use now {4,}\d+\n$/);
    expect(JSON.parse(json.stdout)).toMatchObject({ cells: 22, directors: 8, overlap: 16, within_budget: true });
    expect([over.code, over.stderr]).toEqual([
      1,
      'orca-relay: over the budget: 203 connections and 10 in reserve do not stay below 200\n',
    ]);
    expect([bad.code, bad.stderr]).toEqual([1, expect.stringContaining('It takes a name and a pool')]);
  });
});

import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { hostDigest } from '../../server/log.ts';
import { EventParser } from '../../server/operator/sse.ts';
import type { RunningProcess } from '../../server/run.ts';
import { type CliRun, cli, cliEnd, freePorts } from '../support/cli.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { followsLog, type KnownCell, knownCell, newHostId, startDirector } from '../support/director.ts';
import { eventually } from '../support/eventually.ts';

/** `orca-relay events` and `host` as a script or a person types them, without a terminal. */

const KEY = 'the-key-of-the-metrics';
const env = { ORCA_RELAY_METRICS_KEY: KEY };

let database: FreshDatabase;
let director: RunningProcess;
let home: KnownCell;
let port: string;
let at: string[];
const runs: CliRun[] = [];

async function start(): Promise<RunningProcess> {
  const started = await startDirector(database, { env: { ...env, PORT: port } });
  await followsLog(started);
  return started;
}

beforeAll(async () => {
  database = await freshDatabase();
  home = await knownCell(database, 'us-1');
  port = String(await freePorts(1));
  director = await start();
  at = ['--director', director.origin];
});
afterEach(async () => {
  for (const run of runs.splice(0)) {
    run.kill('SIGKILL');
    await run.ended;
  }
  await home.beat();
});
afterAll(async () => {
  await director?.stop();
  await database?.drop();
});

function events(...args: string[]): CliRun {
  const run = cli(['events', ...at, ...args], env);
  runs.push(run);
  return run;
}
const saying = (run: CliRun, what: RegExp) => eventually(() => expect(run.stdout()).toMatch(what));
const place = (host: string) => database.query("select outcome from relay_v1.assign('user-1', $1)", [host]);

describe('orca-relay events', () => {
  test('prints what happens, a line each, until it is interrupted', async () => {
    const run = events();
    await saying(run, /^From now on\./);
    const host = newHostId();
    await place(host);
    const digest = hostDigest('user-1', host);
    await saying(run, new RegExp(`\\d\\d:\\d\\d:\\d\\d {2}us-1 +host placed: first seen +${digest} {2}epoch 1\\n`));
    run.kill('SIGINT');
    expect(await run.ended).toEqual({ code: 130, signal: null });
    expect(run.stdout()).not.toContain(host);
    expect(run.stderr()).toBe('');
  });

  test('--cell shows one cell; --json one object an event', async () => {
    await knownCell(database, 'us-2');
    const run = events('--cell', 'us-2', '--json');
    await saying(run, /"event":"hello"/);
    await database.query("select relay_v1.set_admission('us-1', 'existing-only')");
    await database.query("select relay_v1.set_admission('us-2', 'existing-only')");
    await database.query("select relay_v1.set_admission('us-1', 'general')");
    await saying(run, /existing-only/);
    const [, ...told] = run
      .stdout()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));
    expect(told).toMatchObject([{ event: 'change', kind: 'admission', to: 'us-2', host: null }]);
  });

  test('over a restart of its director it misses nothing, and says what it waits for', async () => {
    const run = events();
    await saying(run, /From now on/);
    const [first, second] = [newHostId(), newHostId()];
    await place(first);
    await saying(run, new RegExp(hostDigest('user-1', first)));
    await director.stop();
    await eventually(() => expect(run.stderr()).toMatch(/^orca-relay: .* is lost \(.*\); trying again\n/));
    await place(second);
    director = await start();
    await saying(run, new RegExp(hostDigest('user-1', second)));
    expect(run.stdout()).toContain('Going on from the last event.');
    expect(run.stdout()).not.toContain('missing');
    expect(run.stdout().match(new RegExp(hostDigest('user-1', first), 'g'))).toHaveLength(1);
    expect(run.stderr()).toMatch(/trying again\norca-relay: connected again\n$/);
  });

  test('says what is wrong, and ends', async () => {
    const [refused, away, nonsense, nowhere] = await Promise.all([
      cliEnd(['events', ...at], { ORCA_RELAY_METRICS_KEY: 'another-key-than-it-has' }),
      cliEnd(['events', '--director', `http://127.0.0.1:${await freePorts(1)}`]),
      cliEnd(['events', '--director', 'relay.example.com']),
      cliEnd(['events'], { ORCA_RELAY_DATA_DIR: '/nonexistent' }),
    ]);
    expect([refused.code, away.code, nonsense.code, nowhere.code]).toEqual([1, 1, 1, 1]);
    expect(refused.stderr).toMatch(/asks for its metrics key: set ORCA_RELAY_METRICS_KEY/);
    expect(away.stderr).toMatch(/^orca-relay: no answer from the director at http:.*: ECONNREFUSED\n$/);
    expect(nonsense.stderr).toMatch(/is no origin of a director/);
    expect(nowhere.stderr).toMatch(/no "orca-relay up" runs on \/nonexistent; name one with --director/);
  });
});

describe('orca-relay host', () => {
  test('prints where it is and who says so', async () => {
    const host = newHostId();
    await place(host);
    const { code, stdout } = await cliEnd(['host', host, ...at], env);
    expect(code).toBe(0);
    expect(stdout).toContain(
      `Host ${hostDigest('user-1', host)} (so logs and events name it)\n  owner      us-1 at epoch 1\n`,
    );
    expect(stdout).toMatch(
      / {2}row +the same \(us-central1\), last active \d+(\.\d)? s ago\n {2}leases +us-1 at epoch 1, granted, 1 unit, for \d+ s more\n/,
    );
    expect(stdout).toContain('not connected, as far as is known');
  });

  test('takes an id that begins with a dash, wherever it stands', async () => {
    const host = `-h${newHostId().slice(2)}`;
    await place(host);
    for (const args of [
      ['host', host, '--json', ...at],
      ['host', ...at, '--json', host],
    ]) {
      const { code, stdout } = await cliEnd(args, env);
      expect([code, JSON.parse(stdout).accounts[0].owner.cellId]).toEqual([0, 'us-1']);
    }
  });

  test('P8 of a host that nobody knows says so, and fails', async () => {
    const { code, stdout, stderr } = await cliEnd(['host', newHostId(), ...at], env);
    expect(code).toBe(1);
    expect(stdout).toContain('Nobody has heard of this host.');
    expect(stderr).toMatch(/^orca-relay: this director does not know who serves it/);
  });

  test('says what an id looks like', async () => {
    const { code, stderr } = await cliEnd(['host', '43a31bb765bf', ...at], env);
    expect([code, stderr]).toEqual([1, expect.stringContaining('it is 16 letters, digits, - or _')]);
  });
});

test('events are cut from the stream wherever its pieces begin and end', () => {
  const text = ':\n\nid: 1-7\nevent: change\ndata: {"a":\ndata: 1}\n\ndata:2\r\n\r\n';
  const whole = [null, { id: '1-7', event: 'change', data: '{"a":\n1}' }, { event: 'message', data: '2' }];
  for (let cut = 0; cut <= text.length; cut += 1) {
    const parser = new EventParser();
    expect([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]).toEqual(whole);
  }
});

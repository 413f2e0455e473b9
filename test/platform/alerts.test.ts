import { execFile } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { TRIP_STATES } from '../../server/cell/trip-states.ts';
import { readConfig } from '../../server/config.ts';
import { packageRoot } from '../../server/package-root.ts';
import { type RunningProcess, startProcess } from '../../server/run.ts';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';
import { SIGNING_KEY, startDirector } from '../support/director.ts';

/** The alert rules of ops/ against what the processes really say of themselves. */

const folder = path.join(packageRoot, 'ops');
const files = readdirSync(folder).filter((name) => name.endsWith('.yml'));
const rules = files.map((name) => ({ name, text: readFileSync(path.join(folder, name), 'utf8') }));
const expressions = rules.flatMap(({ text }) => [...text.matchAll(/^ +expr: (.*)$/gm)].map((match) => match[1] ?? ''));
const named = [...new Set(expressions.flatMap((expr) => expr.match(/orca_relay_\w+/g) ?? []))].sort();

let database: FreshDatabase;
let director: RunningProcess;
let cell: RunningProcess;
let emitted: Set<string>;

beforeAll(async () => {
  database = await freshDatabase();
  await database.query("select relay_v1.register_cell('c1', 'http://127.0.0.1:1', 'here', 100)");
  director = await startDirector(database);
  cell = await startProcess(
    readConfig({
      ORCA_RELAY_ROLE: 'cell',
      PORT: '0',
      ORCA_RELAY_HOST: '127.0.0.1',
      ORCA_RELAY_CELL_ID: 'c1',
      ORCA_RELAY_CELL_URL: 'http://127.0.0.1:1',
      ORCA_RELAY_REGION: 'here',
      ORCA_RELAY_ASSIGNMENT_SIGNING_KEY: SIGNING_KEY,
      DATABASE_URL: database.urlFor('relay_cell'),
      ORCA_RELAY_LOG_LEVEL: 'silent',
    }),
  );
  const pages = await Promise.all(
    [director, cell].map(({ port }) => fetch(`http://127.0.0.1:${port}/metrics`).then((reply) => reply.text())),
  );
  emitted = new Set(pages.flatMap((page) => [...page.matchAll(/^# TYPE (\S+) /gm)].map((match) => match[1] ?? '')));
});
afterAll(async () => {
  await Promise.all([director?.stop(), cell?.stop()]);
  await database?.drop();
});

/** What it prints; rejects with that when it finds a fault. */
async function promtool(...args: string[]): Promise<string> {
  const run = promisify(execFile)('promtool', args);
  const { stdout } = await run.catch((error: NodeJS.ErrnoException & { stdout?: string; stderr?: string }) => {
    if (error.code === 'ENOENT') throw new Error('no promtool: install it (Debian: apt-get install prometheus)');
    throw new Error(`${error.stdout}${error.stderr}`);
  });
  return stdout;
}

test.each(named)('%s is a metric of a director or a cell', (name) => {
  expect(emitted).toContain(name);
});

describe.each(rules)('$name', ({ name, text }) => {
  test('is what Prometheus accepts', async () => {
    expect(await promtool('check', 'rules', path.join(folder, name))).toMatch(/SUCCESS: \d+ rules found/);
  });

  test('says of every alert how bad it is and what to do', () => {
    const alerts = text.split(/^ +- alert: /m).slice(1);
    expect(alerts.length).toBeGreaterThan(0);
    for (const alert of alerts) {
      expect(alert).toMatch(/^ +labels: \{ severity: (page|ticket) \}$/m);
      expect(alert).toMatch(/^ +summary: ".+"$/m);
      expect(alert).toMatch(/^ +runbook: ".+"$/m);
    }
  });
});

test('fires when it should, and is quiet when it should be', async () => {
  const cases = path.join(packageRoot, 'test/platform/fixtures/alerts.yml');
  expect(await promtool('test', 'rules', cases)).toMatch(/SUCCESS/);
});

test('every label value that a rule asks for is one that the code has', () => {
  const source = readdirSync(path.join(packageRoot, 'server'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => readFileSync(path.join(packageRoot, 'server', name), 'utf8'))
    .join('\n');
  const values = expressions.flatMap((expr) =>
    [...expr.matchAll(/\w+(?:=|!=|=~)"([^"]+)"/g)].flatMap((match) => (match[1] ?? '').split('|')),
  );
  expect(values).toContain('deaf');
  expect(values.filter((value) => !source.includes(`'${value}'`))).toEqual([]);
});

test('the states of the trip are counted as the cell counts them', () => {
  const asked = expressions.flatMap((expr) => /^orca_relay_reserve_trip_state == (\d)$/.exec(expr)?.[1] ?? []);
  expect(asked.map((index) => TRIP_STATES[Number(index)])).toEqual(['tripped', 'held']);
});

import { spawn } from 'node:child_process';
import path from 'node:path';
import pg from 'pg';
import { migrate } from '../../server/migrate.ts';
import { packageRoot } from '../../server/package-root.ts';
import { applyCurrent } from '../global-setup.ts';
import { functionFiles } from '../sql/function-files.ts';
import { installPgtap, readTapFile, runTapFile } from '../support/pgtap.ts';
import { installTestClock } from '../support/test-clock.ts';
import { startThrowawayPostgres } from '../support/throwaway-postgres.ts';
import { drains } from './drains.ts';
import { fences } from './fences.ts';
import { modes } from './modes.ts';
import type { Mutation } from './mutation.ts';
import { placement } from './placement.ts';
import { FAULT_VARIABLE, sourceOf } from './plant-fault.ts';
import { reserve } from './reserve.ts';
import { reserveCell } from './reserve-cell.ts';
import { verdict } from './verdict.ts';

/**
 * Plants each named fault in a database of its own and prints which test caught it. `npm run mutations [word …]` runs those
 * whose name or group holds one of the words. Fails if a fault survives, if its text is not found exactly once, if a test
 * fails without any fault, or after 20 minutes.
 */
const GROUPS = [...placement, ...drains, ...fences, ...modes, ...reserve, ...reserveCell, ...verdict];
const AT_ONCE = 4;
const RACE_TIMEOUT_MS = 180_000;
const DEADLINE_MS = 20 * 60_000;
const TEMPLATE = 'orca_relay_mutations';
/** A fault that is no SQL proves nothing. */
const NO_SQL = /syntax|does not exist|invalid input|is not unique/;

type Verdict = { mutation: Mutation; caughtBy: string | null; problem?: string };

async function main(words: readonly string[]): Promise<void> {
  const server = await startThrowawayPostgres();
  const started = performance.now();
  try {
    await makeTemplate(server.url);
    const wanted = (text: string) => words.length === 0 || words.some((word) => text.includes(word));
    const verdicts: Verdict[] = [];
    for (const { about, tests, mutations } of GROUPS) {
      const chosen = mutations.filter(({ name }) => wanted(name) || wanted(about));
      if (chosen.length === 0) continue;
      console.log(`\n${about}`);
      await failOnHealthy(server.url, tests, new Set(chosen.flatMap(({ race }) => race ?? [])));
      const jobs = chosen.values();
      const work = async () => {
        for (const mutation of jobs) {
          if (performance.now() - started > DEADLINE_MS) throw new Error('not done after 20 minutes');
          const verdict = await judge(server.url, tests, mutation);
          verdicts.push(verdict);
          const outcome = verdict.problem ?? (verdict.caughtBy === null ? 'SURVIVED' : `caught by ${verdict.caughtBy}`);
          console.log(`  ${mutation.name.padEnd(52)} ${outcome}`);
        }
      };
      // a race has vitest and its sessions to itself
      await Promise.all(Array.from({ length: tests.length > 0 ? AT_ONCE : 1 }, work));
    }
    const uncaught = verdicts.filter(({ caughtBy }) => caughtBy === null);
    const seconds = Math.round((performance.now() - started) / 1000);
    console.log(`\n${verdicts.length - uncaught.length} caught, ${uncaught.length} survived, ${seconds} s`);
    for (const { mutation } of uncaught) console.log(`  survived: ${mutation.name} (${mutation.file})`);
    if (uncaught.length > 0 || verdicts.length === 0) process.exitCode = 1;
  } finally {
    await server.stop();
  }
}

async function judge(serverUrl: string, tests: readonly string[], mutation: Mutation): Promise<Verdict> {
  const isTypeScript = mutation.file.startsWith('server/');
  const text = isTypeScript
    ? sourceOf(mutation.file)
    : (functionFiles.find(({ name }) => name === mutation.file)?.text ?? '');
  const pieces = text.split(mutation.from);
  if (pieces.length !== 2) {
    return { mutation, caughtBy: null, problem: `ITS TEXT STANDS ${pieces.length - 1} TIMES IN ${mutation.file}` };
  }
  const mutated = pieces.join(mutation.to);
  try {
    if (isTypeScript) {
      const { file, from, to } = mutation;
      const fault = { [FAULT_VARIABLE]: JSON.stringify({ file, from, to }) };
      return { mutation, caughtBy: await firstFailureOf(mutation.race ?? '', serverUrl, fault) };
    }
    if (mutation.race) {
      await withClone(serverUrl, mutated, async () => undefined);
      return { mutation, caughtBy: await firstFailureOf(mutation.race, serverUrl, planted(mutated)) };
    }
    return { mutation, caughtBy: await withClone(serverUrl, mutated, (url) => firstFailure(url, tests)) };
  } catch (error) {
    return { mutation, caughtBy: null, problem: `CANNOT BE PLANTED: ${(error as Error).message}` };
  }
}

async function failOnHealthy(serverUrl: string, tests: readonly string[], races: Iterable<string>): Promise<void> {
  let failure = await withClone(serverUrl, '', (url) => firstFailure(url, tests));
  for (const race of races) failure ??= await firstFailureOf(race, serverUrl, {});
  if (failure !== null) throw new Error(`without any fault planted, a test fails: ${failure}`);
}

async function firstFailure(url: string, tests: readonly string[]): Promise<string | null> {
  for (const name of tests) {
    const run = await runTapFile(url, readTapFile(path.join(packageRoot, 'test', 'sql', name)));
    const failed = run.assertions.find(({ ok }) => !ok);
    if (failed) return `${name}: ${failed.number} ${failed.name}`;
    const error = run.error?.split('\n')[0];
    if (error !== undefined && NO_SQL.test(error)) throw new Error(error);
    if (error !== undefined) return `${name}: after ${run.assertions.length} tests, ${error}`;
    if (run.assertions.length !== run.planned) return `${name}: not as many tests as planned`;
  }
  return null;
}

/** The template gets the fault. */
const planted = (sql: string) => ({ ORCA_RELAY_TEST_MUTATION: sql });

/** Runs a vitest file with the fault in it; the name of a test that failed. */
function firstFailureOf(file: string, serverUrl: string, fault: Record<string, string>): Promise<string | null> {
  return new Promise((resolve, reject) => {
    const child = spawn(
      process.execPath,
      [path.join(packageRoot, 'node_modules/vitest/vitest.mjs'), 'run', `test/${file}`, '--reporter=json', '--bail=1'],
      {
        cwd: packageRoot,
        env: { ...process.env, ORCA_RELAY_TEST_POSTGRES_URL: serverUrl, ...fault },
        stdio: ['ignore', 'pipe', 'ignore'],
        timeout: RACE_TIMEOUT_MS,
      },
    );
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk.toString();
    });
    child.on('error', reject);
    child.on('close', () => {
      try {
        const report = JSON.parse(output.slice(output.indexOf('{'))) as VitestReport;
        const failed = report.testResults.flatMap((one) => one.assertionResults).find((one) => one.status === 'failed');
        resolve(failed === undefined ? null : `${file}: ${failed.fullName}`);
      } catch {
        reject(new Error(`${file} did not report`));
      }
    });
  });
}

interface VitestReport {
  testResults: { assertionResults: { fullName: string; status: string }[] }[];
}

let clones = 0;

async function withClone<T>(serverUrl: string, sql: string, work: (url: string) => Promise<T>): Promise<T> {
  const name = `${TEMPLATE}_${++clones}`;
  await onServer(serverUrl, `create database ${name} template ${TEMPLATE}`);
  try {
    const url = databaseUrl(serverUrl, name);
    if (sql !== '') await onServer(url, sql);
    return await work(url);
  } finally {
    await onServer(serverUrl, `drop database ${name} with (force)`);
  }
}

async function makeTemplate(serverUrl: string): Promise<void> {
  await onServer(serverUrl, `create database ${TEMPLATE}`);
  const url = databaseUrl(serverUrl, TEMPLATE);
  await migrate(url);
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await applyCurrent(client, url);
  await installTestClock(client);
  await client.end();
  await installPgtap(url);
}

async function onServer(url: string, sql: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(sql);
  } finally {
    await client.end();
  }
}

function databaseUrl(serverUrl: string, name: string): string {
  const url = new URL(serverUrl);
  url.pathname = `/${name}`;
  return url.href;
}

await main(process.argv.slice(2));

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { packageRoot } from '../../server/package-root.ts';

/** What the documents name is there, and what is there they name. */

const read = (name: string) => readFileSync(path.join(packageRoot, name), 'utf8');
const readme = read('README.md');
const quoted = (text: string) => [...new Set([...text.matchAll(/`([^`\n]+)`/g)].map((match) => match[1] as string))];

const FOLDERS = /^(bench|client|contract|db|docs|ops|server|test)\//;
const paths = quoted(read('docs/invariants.md')).filter((word) => FOLDERS.test(word));

test('docs/invariants.md names no file that is not there', () => {
  expect(paths.length).toBeGreaterThan(50);
  const found = (name: string) => {
    if (!name.includes('*')) return existsSync(path.join(packageRoot, name));
    const pattern = new RegExp(`^${path.basename(name).split('*').join('.*')}$`);
    return readdirSync(path.join(packageRoot, path.dirname(name))).some((file) => pattern.test(file));
  };
  expect(paths.filter((name) => !found(name))).toEqual([]);
});

test('docs/invariants.md says of P1 to P10 who enforces each and which test fails without it', () => {
  const rows = [...read('docs/invariants.md').matchAll(/^\| P(\d+) \| .+ \| (.+) \| (.+) \|$/gm)];
  expect(rows.map(([, number]) => Number(number))).toEqual([1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
  for (const [row, , , tests] of rows) expect(tests, row).toMatch(/`test\//);
});

test('the README has a row for each command', () => {
  const commands = [...read('server/cli.ts').matchAll(/\.command\('(\w+)/g)].map((match) => match[1] as string);
  const rows = readme.split('\n').filter((line) => line.startsWith('| `'));
  const explained = new Set(
    rows.flatMap((row) => quoted(row.split(' | ')[0] as string).map((word) => word.split(' ')[0])),
  );
  expect(commands.length).toBeGreaterThan(10);
  expect(commands.filter((name) => !explained.has(name))).toEqual([]);
});

test('the README names each variable that is read', () => {
  const sources = readdirSync(path.join(packageRoot, 'server'), { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .map((name) => read(path.join('server', name)))
    .join('\n');
  const variables = new Set(sources.match(/\bORCA_RELAY_[A-Z_]+[A-Z]\b/g));
  const named = (name: string) => readme.includes(name) || /_(QUEUE_MAX|WAIT_MS|RETRY_AFTER_SECONDS)$/.test(name);
  expect(variables.size).toBeGreaterThan(20);
  expect([...variables].filter((name) => !named(name))).toEqual([]);
});

test('the README names each script for a person', () => {
  const { scripts } = JSON.parse(read('package.json')) as { scripts: Record<string, string> };
  const named = (name: string) => new RegExp(`npm (run )?${name}\\b`).test(readme);
  const others = ['prepare', 'prestart', 'build', 'check', 'migration:uncommit'];
  expect(Object.keys(scripts).filter((name) => !others.includes(name) && !named(name))).toEqual([]);
});

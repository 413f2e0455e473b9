import { spawnSync } from 'node:child_process';
import path from 'node:path';
import { expect, test } from 'vitest';

function run(kind: string) {
  const script = path.join(import.meta.dirname, 'fixtures/reject.ts');
  return spawnSync(process.execPath, ['--import', 'tsx', script, kind], { encoding: 'utf8' });
}

// Incident 35
test('a rejection of the database layer that nobody handled is counted, logged and survived', () => {
  const { status, stdout } = run('database');
  expect(status).toBe(0);
  expect(stdout).toContain('"event":"orca_relay_unhandled_rejection"');
  expect(stdout).toMatch(/^orca_relay_unhandled_rejections_total 1$/m);
});

test('any other ends the process, and the log says of what', () => {
  const { status, stdout, stderr } = run('bug');
  expect(status).not.toBe(0);
  expect(stderr).toContain('a bug of our own');
  expect(stdout).toMatch(/"level":"error".*"event":"orca_relay_process_failed".*a bug of our own/);
});

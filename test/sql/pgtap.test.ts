import { readdirSync } from 'node:fs';
import path from 'node:path';
import { afterAll, describe, expect, test } from 'vitest';
import { freshDatabase } from '../support/database.ts';
import { installPgtap, readTapFile, runTapFile } from '../support/pgtap.ts';

const folder = import.meta.dirname;
const files = readdirSync(folder, { recursive: true, encoding: 'utf8' })
  .filter((name) => name.endsWith('.sql') && !name.startsWith('helpers'))
  .sort();

// The files run while vitest collects, because each assertion becomes a test of its own.
const database = await freshDatabase();
afterAll(() => database.drop());
await installPgtap(database.url);

for (const name of files) {
  const run = await runTapFile(database.url, readTapFile(path.join(folder, name)));
  describe(name, () => {
    for (const { number, name: title, ok, diagnostics } of run.assertions) {
      test(`${number} ${title}`, () => expect(ok, diagnostics.join('\n')).toBe(true));
    }
    test('runs to its end, with as many assertions as planned', () => {
      expect(run.error).toBeNull();
      expect(run.assertions.length).toBe(run.planned);
    });
  });
}

describe('pgTAP', () => {
  test('is there', async () => {
    const { assertions } = await runTapFile(database.url, 'select plan(1); select ok(false, $$no$$)');
    expect(assertions).toMatchObject([{ number: 1, name: 'no', ok: false }]);
  });
});

import { existsSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { migrationsFolder } from '../../server/migrate.ts';
import { functionFiles } from './function-files.ts';

const committedFolder = path.join(migrationsFolder, 'committed');
const committed = readdirSync(committedFolder)
  .filter((name) => name.endsWith('.sql'))
  .sort()
  .map((name) => ({ name, text: readFileSync(path.join(committedFolder, name), 'utf8') }));

const currentFile = path.join(migrationsFolder, 'current.sql');
const current = existsSync(currentFile) ? readFileSync(currentFile, 'utf8') : '';
const included = new Set([...current.matchAll(/^--!\s*include\s+(\S+)\s*$/gm)].map((match) => match[1]!));

/** What the last migration that holds a file has of it. */
function lastCommitted(name: string): string | null {
  const block = new RegExp(`^--! Included ${name.replaceAll('.', '\\.')}\n(.*?)\n--! EndIncluded `, 'ms');
  for (const { text } of committed.toReversed()) {
    const found = block.exec(text);
    if (found) return found[1]!;
  }
  return null;
}

describe('a database that was migrated has the functions of this folder', () => {
  test.each(functionFiles)('$name', ({ name, text }) => {
    if (included.has(name)) return;
    expect(lastCommitted(name), 'in no migration: include it in current.sql').not.toBeNull();
    expect(lastCommitted(name), 'changed since it was committed: include it in current.sql').toBe(text.trim());
  });

  test('and current.sql includes no file that is not there', () => {
    const names = new Set(functionFiles.map(({ name }) => name));
    expect([...included].filter((name) => !names.has(name))).toEqual([]);
  });
});

// an older graphile-migrate takes an include line for a comment, and commits a migration without its functions
test.each(committed)('$name has no include line left', ({ text }) => {
  expect(text).not.toMatch(/^--!\s*include\b/m);
});

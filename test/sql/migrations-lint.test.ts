import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { parse } from 'libpg-query';
import { describe, expect, test } from 'vitest';
import { migrationsFolder } from '../../server/migrate.ts';

/** What a migration does to tables that are there already, while processes of the version before work on them. */

type Node = Record<string, unknown>;

interface Migration {
  name: string;
  text: string;
  statements: Node[];
}

const folder = path.join(migrationsFolder, 'committed');
const migrations: Migration[] = await Promise.all(
  readdirSync(folder)
    .filter((name) => name.endsWith('.sql'))
    .sort()
    .map(async (name) => {
      const text = readFileSync(path.join(folder, name), 'utf8');
      const { stmts = [] } = await parse(text);
      return { name, text, statements: stmts.map(({ stmt }) => stmt as Node) };
    }),
);
/** Nobody had a table yet when these were written. */
const FIRST = 2;

const created = new Map<string, string>();
for (const { name, statements } of migrations) {
  for (const { CreateStmt } of statements) {
    const table = (CreateStmt as { relation?: { relname: string } } | undefined)?.relation?.relname;
    if (table !== undefined) created.set(table, name);
  }
}

const isBare = ({ text }: Migration) => /^--! no-transaction$/m.test(text);

describe.each(migrations)('$name', (migration) => {
  const { name, text, statements } = migration;

  test('waits for no lock for long', () => {
    // what runs outside a transaction is one statement, which takes no lock that others wait behind
    if (isBare(migration)) expect(statements).toHaveLength(1);
    else expect(text).toMatch(/^set local lock_timeout = '\d+s';$/m);
  });

  test('does one thing an ALTER', () => {
    const alters = statements.flatMap(({ AlterTableStmt }) => (AlterTableStmt ? [AlterTableStmt as Node] : []));
    expect(alters.filter(({ cmds }) => (cmds as unknown[]).length !== 1)).toEqual([]);
  });

  test('builds an index on a table that was there before concurrently', () => {
    if (migrations.indexOf(migration) < FIRST) return;
    const indexes = statements.flatMap(({ IndexStmt }) => (IndexStmt ? [IndexStmt as Node] : []));
    const blocking = indexes.filter(
      ({ relation, concurrent }) => created.get((relation as { relname: string }).relname) !== name && !concurrent,
    );
    expect(blocking).toEqual([]);
  });
});

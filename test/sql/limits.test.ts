import { afterAll, expect, test } from 'vitest';
import { LIMITS } from '../../contract/limits.ts';
import { freshDatabase } from '../support/database.ts';
import { functionFiles } from './function-files.ts';

const database = await freshDatabase();
afterAll(() => database.drop());

const USE = /relay\.(?:limit_of|span_of)\('(\w+)'\)/g;
const used = [
  ...new Set(functionFiles.flatMap(({ text }) => [...text.matchAll(USE)].map((match) => match[1]!))),
].sort();
const known = [
  ...functionFiles.find(({ name }) => name === 'rules/limit_of.sql')!.text.matchAll(/when '(\w+)' then/g),
].map((match) => match[1]!);

test.each(known)('%s is the same number in SQL as on the wire', async (name) => {
  const [row] = await database.query<{ limit: number; span: number }>(
    'select relay.limit_of($1) as limit, extract(epoch from relay.span_of($1))::float8 * 1000 as span',
    [name],
  );
  expect(row).toEqual({ limit: LIMITS[name as keyof typeof LIMITS], span: LIMITS[name as keyof typeof LIMITS] });
});

test('every limit that a function names is one that SQL knows', () => {
  expect(used.filter((name) => !known.includes(name))).toEqual([]);
});

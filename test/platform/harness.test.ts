import { afterAll, beforeAll, expect, test } from 'vitest';
import { type FreshDatabase, freshDatabase } from '../support/database.ts';

let database: FreshDatabase;
beforeAll(async () => {
  database = await freshDatabase();
});
afterAll(() => database.drop());

test('a fresh database is a clone of its own', async () => {
  const other = await freshDatabase();
  await database.query('create table mine (id int8 primary key)');
  await database.query('insert into mine values ($1)', [7]);
  expect(await database.query('select id from mine')).toEqual([{ id: 7 }]);
  expect(await other.query("select to_regclass('mine') as mine")).toEqual([{ mine: null }]);
  await other.drop();
});

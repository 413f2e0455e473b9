import type pg from 'pg';

/**
 * Replaces `relay.now()`, the only clock of the schema, by one that reads a row, so that a test moves time for every session
 * of running processes at once. pgTAP files call `test_clock.advance(interval)`, `test_clock.freeze(timestamptz)` and
 * `test_clock.thaw()`.
 */
export async function installTestClock(client: pg.ClientBase): Promise<void> {
  const { rows } = await client.query<{ clock: string | null }>("select to_regprocedure('relay.now()') as clock");
  if (rows[0]?.clock === null) return;
  await client.query(`
    create schema test_clock;
    create table test_clock.reading (
      single_row boolean primary key default true check (single_row),
      frozen_at timestamptz,
      shift interval not null default '0'
    );
    insert into test_clock.reading default values;
    create or replace function relay.now() returns timestamptz
      language plpgsql volatile security definer set search_path = test_clock, pg_temp as $$
    begin
      return (select coalesce(frozen_at, clock_timestamp()) + shift from reading);
    end $$;
    create function test_clock.advance(by interval) returns void language sql as
      $$ update test_clock.reading set shift = shift + by $$;
    create function test_clock.freeze(at timestamptz) returns void language sql as
      $$ update test_clock.reading set frozen_at = at, shift = '0' $$;
    create function test_clock.thaw() returns void language sql as
      $$ update test_clock.reading set frozen_at = null $$;
  `);
}

-- Whether all that connects to this server fits: cells as they are registered, directors, and what else shares the server,
-- while one kind of process is replaced by its successors. What the database cannot know is given; a process that hears the
-- doorbell holds a listener besides its pool. The server's own limit counts, or the one given.
-- Within the budget: operating <= usable, and operating + reserve < max_connections.
-- Caller: operator, monitor. Locks: none. SQLSTATE RL001 for a pool that is no pool.
create or replace function relay_v1.connection_budget(
  cell_pool int default 10, cell_pools jsonb default '{}', directors int default 2, director_pool int default 3,
  listeners_per_director int default 1, listeners_per_cell int default 1, rolling int default 0, auth int default 0,
  api int default 0, push int default 0, max_connections int default null, maintenance int default 5,
  reserve int default 10)
returns relay_v1.connection_budget_result
language plpgsql stable
security definer
set search_path = relay, pg_temp
as $$
declare
  v_b relay_v1.connection_budget_result;
begin
  if least(connection_budget.cell_pool, connection_budget.directors, connection_budget.director_pool,
    connection_budget.listeners_per_director, connection_budget.listeners_per_cell, connection_budget.rolling,
    connection_budget.auth, connection_budget.api, connection_budget.push, connection_budget.max_connections,
    connection_budget.maintenance, connection_budget.reserve) < 0 then
    perform relay.misuse('connection_budget: a count is not below zero');
  elsif jsonb_typeof(connection_budget.cell_pools) is distinct from 'object' or exists (
    select from jsonb_each(connection_budget.cell_pools) p
    where not relay.is_pool(p.value)) then
    perform relay.misuse('connection_budget: cell_pools is {cell or region: pool or {"pool", "peak"}}, each 1 to 1000');
  end if;
  v_b.cells := relay.cell_connections(connection_budget.cell_pool, connection_budget.cell_pools,
    connection_budget.listeners_per_cell, connection_budget.rolling, relay.now());
  v_b.directors := connection_budget.directors
    * (connection_budget.director_pool + connection_budget.listeners_per_director);
  v_b.auth := connection_budget.auth;
  v_b.api := connection_budget.api;
  v_b.push := connection_budget.push;
  v_b.configured := v_b.cells + v_b.directors + v_b.auth + v_b.api + v_b.push;
  v_b.overlap := greatest(
    2 * v_b.directors, v_b.directors + v_b.api, v_b.directors + v_b.auth, v_b.directors + 2 * v_b.push);
  v_b.maintenance := connection_budget.maintenance;
  v_b.operating := v_b.configured + v_b.overlap + v_b.maintenance;
  v_b.max_connections := coalesce(connection_budget.max_connections, current_setting('max_connections')::int);
  v_b.reserve := connection_budget.reserve;
  v_b.usable := v_b.max_connections - v_b.reserve;
  v_b.spare := v_b.usable - v_b.operating;
  v_b.budgeted := v_b.operating + v_b.reserve;
  v_b.within_budget := v_b.operating <= v_b.usable and v_b.budgeted < v_b.max_connections;
  v_b.in_use := (select sum(d.numbackends) from pg_stat_database d);
  return v_b;
end
$$;
comment on function relay_v1.connection_budget(
  int, jsonb, int, int, int, int, int, int, int, int, int, int, int) is
  'Whether the connections of cells, directors and what else shares the server fit its limit, replacements included';

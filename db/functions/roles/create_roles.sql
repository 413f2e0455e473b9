-- The roles that members of the relay log in through. They belong to the cluster, so that another database of it may
-- have made them already. Timeouts bind a role that logs in itself; for members the processes set their own.
do $$
declare
  v_role text;
begin
  foreach v_role in array array['relay_director', 'relay_cell', 'relay_operator', 'relay_monitor'] loop
    if not exists (select from pg_roles r where r.rolname = v_role) then
      begin
        execute format('create role %I nologin', v_role);
        execute format('alter role %I set statement_timeout = %L', v_role, '5s');
        execute format('alter role %I set idle_in_transaction_session_timeout = %L', v_role, '5s');
      exception when duplicate_object or unique_violation then
        null; -- another database of the cluster was migrated at the same moment
      end;
    end if;
  end loop;
end
$$;

-- Who may call what (02, the SQL interface).
revoke execute on all functions in schema relay, relay_v1 from public;
grant usage on schema relay_v1 to relay_director, relay_cell, relay_operator, relay_monitor;

grant execute on function relay_v1.schema_version, relay_v1.register_cell, relay_v1.explain_assign
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.simulate_outage, relay_v1.connection_budget to relay_operator, relay_monitor;
grant execute on function relay_v1.assign, relay_v1.resolve, relay_v1.regions, relay_v1.cells, relay_v1.changes_since,
  relay_v1.sweep_leases, relay_v1.sweep_credentials, relay_v1.sweep_changes
  to relay_director;
grant execute on function relay_v1.sweep_dead_cells, relay_v1.sweep_migrations
  to relay_director;
grant execute on function relay_v1.start_drain, relay_v1.cancel_drain, relay_v1.evacuate_cell, relay_v1.supersede_target,
  relay_v1.migration_status, relay_v1.fence_begin, relay_v1.fence_start, relay_v1.fence_commit, relay_v1.fence_abort,
  relay_v1.fence_release, relay_v1.fence_status
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.set_admission, relay_v1.isolate_for_roll, relay_v1.restore_after_roll,
  relay_v1.retire_cell, relay_v1.set_admit_mode, relay_v1.set_cell_flags
  to relay_director, relay_cell, relay_operator, relay_monitor;
grant execute on function relay_v1.record_seats, relay_v1.host_row, relay_v1.epoch_base to relay_director;
grant execute on function relay_v1.record_effective_mode, relay_v1.claim_trip_slot to relay_cell;
grant execute on function relay.trip_slots_rows, relay.modes_rows to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.trip_slots, relay_v1.modes to relay_director, relay_operator, relay_monitor;
grant execute on function relay_v1.heartbeat, relay_v1.verify_seat, relay_v1.activate_control, relay_v1.renew_leases,
  relay_v1.reregister_controls,
  relay_v1.release_lease, relay_v1.cell_orders, relay_v1.changes_since, relay_v1.create_invite,
  relay_v1.open_connection, relay_v1.release_invite, relay_v1.install_credential, relay_v1.install_status,
  relay_v1.confirm_resume, relay_v1.revoke_device
  to relay_cell;
grant execute on function relay.fleet_rows, relay.hosts_by_cell_rows, relay.recent_changes_rows
  to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.fleet, relay_v1.hosts_by_cell, relay_v1.recent_changes
  to relay_director, relay_operator, relay_monitor;
grant execute on function relay.drains_rows, relay.open_migrations_rows, relay.fences_rows
  to relay_director, relay_operator, relay_monitor;
grant select on relay_v1.drains, relay_v1.open_migrations, relay_v1.fences
  to relay_director, relay_operator, relay_monitor;

-- Every open migration and what it waits for. Reader: monitor, operator, director.
create view relay_v1.open_migrations as
select m.* from relay.open_migrations_rows() m order by m.source_cell, m.user_id, m.relay_host_id;
comment on view relay_v1.open_migrations is 'Hosts that were moved off a cell and are not done: seated on the target, gone from the source';
comment on column relay_v1.open_migrations.pinned is 'The source was told to drain: the host leaves the target only by a fence or a later move';
comment on column relay_v1.open_migrations.registered is 'The host has been seated on the target';
comment on column relay_v1.open_migrations.source_lease is 'What the host still holds on the source';
comment on column relay_v1.open_migrations.target_lease is 'What the host holds on the target';
comment on column relay_v1.open_migrations.next_step is 'What the next sweep does: wait, register, complete, roll-back, give-up, overtaken';

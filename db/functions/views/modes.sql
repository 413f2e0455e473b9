-- How each cell is to admit hosts, and how its process does. Reader: monitor, operator, director.
create view relay_v1.modes as
select m.* from relay.modes_rows() m order by m.cell_id;
comment on view relay_v1.modes is 'How each cell is to admit hosts (record and flags), and how its process does';
comment on column relay_v1.modes.admit_mode is 'What the operators recorded: what decisions about its hosts go by';
comment on column relay_v1.modes.flag_mode is 'What the flags tell the process';
comment on column relay_v1.modes.flags_generation is 'To be named by who writes the flags next';
comment on column relay_v1.modes.effective_mode is 'What the process that was heard last says that it does; null: it never was in reserve mode';
comment on column relay_v1.modes.effective_age is 'Since it said so';
comment on column relay_v1.modes.unleased is 'Controls without a lease yet, on the way back to db';
comment on column relay_v1.modes.seated is 'Hosts that hold a lease with this process';
comment on column relay_v1.modes.polled is 'Whether a director that places by booking polled it in the last 45 s';
comment on column relay_v1.modes.director_age is 'Since such a director last did; null: never';

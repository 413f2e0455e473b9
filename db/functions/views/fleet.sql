-- Every cell as an operator wants to see it. Reader: monitor, operator, director.
create or replace view relay_v1.fleet as
select f.* from relay.fleet_rows() f order by f.cell_id;
comment on view relay_v1.fleet is 'Every cell: where it is, whether it is live, what it carries';
comment on column relay_v1.fleet.live is 'Ready, and heard less than 45 s ago';
comment on column relay_v1.fleet.load is 'What the last heartbeat said, and the leases that it cannot show yet';
comment on column relay_v1.fleet.unit_limit is 'Load below which the cell is given hosts';
comment on column relay_v1.fleet.state is 'live, not ready, unheard (for 45 s), never heard';
comment on column relay_v1.fleet.effective_mode is 'How the process says that it admits hosts; db on a reserve cell: it has tripped';
comment on column relay_v1.fleet.free_units is 'What the cell can still be given; 0 when it is full';
comment on column relay_v1.fleet.admission_generation is 'Name it in set_admission, and the later of two operators is refused';
comment on column relay_v1.fleet.roll_age is 'Since the cell was set apart for a roll; counts for 2 h';
comment on column relay_v1.fleet.drain_progress is '0 to 1 while the running process is told to drain: the share of its hosts that no longer has a seat';

-- Every cell as an operator wants to see it. Reader: monitor, operator.
create or replace view relay_v1.fleet as
select f.* from relay.fleet_rows() f order by f.cell_id;
comment on view relay_v1.fleet is 'Every cell: where it is, whether it is live, what it carries';
comment on column relay_v1.fleet.live is 'Ready, and heard less than 45 s ago';
comment on column relay_v1.fleet.load is 'What the last heartbeat said, and the leases that it cannot show yet';
comment on column relay_v1.fleet.unit_limit is 'Load below which the cell is given hosts';

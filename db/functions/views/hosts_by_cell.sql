-- How many hosts belong on each cell, and what they hold there. Reader: monitor, operator.
create or replace view relay_v1.hosts_by_cell as
select h.* from relay.hosts_by_cell_rows() h order by h.cell_id;
comment on view relay_v1.hosts_by_cell is 'Hosts of each cell, and their unexpired leases by state';
comment on column relay_v1.hosts_by_cell.hosts is 'Hosts whose row names the cell';
comment on column relay_v1.hosts_by_cell.granted is 'Promised a seat and not attached';
comment on column relay_v1.hosts_by_cell.active is 'Seated';
comment on column relay_v1.hosts_by_cell.retiring is 'Moved away, in their last minute here';

-- Every cell that is told to drain, and how far it is. Reader: monitor, operator, director.
create view relay_v1.drains as
select d.* from relay.drains_rows() d order by d.cell_id;
comment on view relay_v1.drains is 'Cells that are told to drain, and how far each is';
comment on column relay_v1.drains.current is 'Whether the order is for the process that runs; a newer one ignores it';
comment on column relay_v1.drains.hosts is 'Hosts there when the drain was ordered';
comment on column relay_v1.drains.seated is 'Hosts that still have their seat';
comment on column relay_v1.drains.promised is 'Hosts that were promised a seat and are not attached';
comment on column relay_v1.drains.retiring is 'Hosts that were moved away, in their grace';
comment on column relay_v1.drains.told is 'Hosts that the process had told by its last heartbeat';
comment on column relay_v1.drains."left" is 'Hosts still seated on the process by its last heartbeat, those in their grace too';
comment on column relay_v1.drains.progress is '0 to 1: the share of the hosts that no longer has a seat';

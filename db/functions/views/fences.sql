-- Fences, and the attempts to prove that a process is gone. Reader: monitor, operator, director.
create view relay_v1.fences as
select f.* from relay.fences_rows() f order by f.cell_id, f.begun_at;
comment on view relay_v1.fences is 'Fences of cells, and open attempts at one';
comment on column relay_v1.fences.state is 'begun, expired, started or completed';
comment on column relay_v1.fences.fenced is 'Whether hosts may leave the cell by it now';
comment on column relay_v1.fences.expires_in is 'Until the fence ends; committing again renews it';
comment on column relay_v1.fences.lease_expires_in is 'Until the fleet''s mutation lease of the attempt ends; null if it holds none';

-- Cells in reserve mode, or that have been, and who of them holds a trip slot. Reader: monitor, operator, director.
create view relay_v1.trip_slots as
select t.* from relay.trip_slots_rows() t order by t.cell_id;
comment on view relay_v1.trip_slots is 'Cells in reserve mode, how they really admit hosts, and which hold a trip slot';
comment on column relay_v1.trip_slots.admit_mode is 'What the operators recorded';
comment on column relay_v1.trip_slots.effective_mode is 'What the process last said that it does; db on a cell recorded as reserve: it has tripped';
comment on column relay_v1.trip_slots.holds_slot is 'Counts against the limit of cells that may run on the database at once';
comment on column relay_v1.trip_slots.slots is 'That limit as this cell has it; null: it trips without asking';
comment on column relay_v1.trip_slots.row_age is 'Since the process last said so';
comment on column relay_v1.trip_slots.frees_in is 'When the slot is free again if the process stays silent';

--! Previous: sha1:41cf697757b1d8d717eb012466444ab794af93b0
--! Hash: sha1:ff994aa18a55a228d08529748c9be0fb0bd0a8e7
--! Message: find a host by its id

--! no-transaction
-- Whereabouts asks for a host by its id alone.
create index concurrently if not exists assignment_relay_host_id_idx on relay.assignment (relay_host_id);

--! Previous: sha1:3d74d1ab502161fcedc619360f7ae3a3f2137f94
--! Hash: sha1:b42c4c5045b9307e841e1d9d66d97f43c8930337
--! Message: find a host by its id

--! no-transaction
-- Whereabouts asks for a host by its id alone.
create index concurrently if not exists assignment_relay_host_id_idx on relay.assignment (relay_host_id);

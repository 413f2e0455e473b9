--! Previous: sha1:1a03b3b3ca1b579abc19729d575b122cbdc4b248
--! Hash: sha1:6a3e60f57585c3ba3c771e74b261bf08f26d4b5f
--! Message: find a host by its id

--! no-transaction
-- Whereabouts asks for a host by its id alone.
create index concurrently if not exists assignment_relay_host_id_idx on relay.assignment (relay_host_id);

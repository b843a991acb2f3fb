-- +goose Up
-- What waits, and what is being delivered from the queue, has a row in queue from now on.
INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes)
SELECT event_id, n, alias_id, received_at, kind, released, bytes FROM attempts WHERE state = 0;
INSERT INTO queue (event_id, n, alias_id, received_at, kind, released, bytes, claim_node)
SELECT event_id, n, alias_id, received_at, kind, released, bytes, claim_node FROM attempts WHERE state = 1 AND from_queue = 1;
DROP INDEX attempts_queued;

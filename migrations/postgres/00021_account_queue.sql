-- +goose Up
-- How many attempts may be queued at all aliases of an account: NULL = as the server says, 0 = no limit.
ALTER TABLE accounts ADD COLUMN max_queue BIGINT;

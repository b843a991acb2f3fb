-- +goose Up
-- How many bytes all aliases of an account may have stored: NULL = as the server says, 0 = no limit.
ALTER TABLE accounts ADD COLUMN max_storage INTEGER;

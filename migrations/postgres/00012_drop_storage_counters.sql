-- +goose Up
-- The nodes tell each other by revisions what they have stored. A node of an earlier version
-- then counts only what it has stored itself, until it is replaced.
DROP TABLE storage_counters;

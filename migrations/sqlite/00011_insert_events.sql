-- +goose Up
-- On Postgres this version adds a function that inserts events. SQLite has none, and its
-- statements are prepared.
SELECT 1;

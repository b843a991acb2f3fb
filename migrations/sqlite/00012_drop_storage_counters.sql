-- +goose Up
-- Nothing was ever in it.
DROP TABLE storage_counters;

-- +goose Up
-- Bytes that each node has added to the storage of an alias, less those that it removed, since
-- the counter began. The nodes read each other's counters to enforce max-alias-storage. node is
-- random with the number of the hour, so that a counter begins at 0 and is not used for long.
CREATE TABLE storage_counters (
    node       TEXT NOT NULL,
    alias_id   BIGINT NOT NULL,
    bytes      BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (node, alias_id)
);
CREATE INDEX storage_counters_updated ON storage_counters (updated_at);

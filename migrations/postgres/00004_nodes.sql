-- +goose Up
-- A relayd of an earlier version holds this lock while it serves.
SELECT pg_advisory_xact_lock(1919249505, hashtext(current_schema()));

-- It counted the starts of each data dir.
DROP TABLE nodes;
DELETE FROM meta WHERE name = 'serving';

-- A node is one relayd from its start, or from its rejoin, to its end. id is random and new
-- each time. beat is raised every second; only its growth has a meaning. seen_at is the time
-- of the database at the last beat, for display. feed is listening or polling.
CREATE TABLE nodes (
    id              TEXT PRIMARY KEY,
    name            TEXT NOT NULL,
    peer_addr       TEXT NOT NULL,
    peer_key        TEXT NOT NULL,
    version         TEXT NOT NULL,
    schema_version  BIGINT NOT NULL,
    started_at      BIGINT NOT NULL,
    seen_at         BIGINT NOT NULL,
    beat            BIGINT NOT NULL,
    state           TEXT NOT NULL,
    spool_steps     BIGINT NOT NULL DEFAULT 0,
    clock_offset_us BIGINT NOT NULL DEFAULT 0,
    feed            TEXT NOT NULL DEFAULT '',
    accounts        TEXT NOT NULL DEFAULT ''
) WITH (fillfactor = 50);

-- The names of all nodes that ever were: attempts keep the id of the node that ran them.
CREATE TABLE node_names (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL
);

-- The newest tunnel of each alias. tunnel_id is random and new with each attachment.
CREATE TABLE tunnels (
    alias_id    BIGINT PRIMARY KEY,
    tunnel_id   TEXT NOT NULL UNIQUE,
    node_id     TEXT NOT NULL,
    account_id  BIGINT NOT NULL,
    user_name   TEXT NOT NULL,
    since       BIGINT NOT NULL,
    client      TEXT NOT NULL,
    remote_addr TEXT NOT NULL,
    target      TEXT NOT NULL,
    host_header TEXT NOT NULL,
    lazy_dial   SMALLINT NOT NULL,
    state       TEXT NOT NULL,
    requests    BIGINT NOT NULL DEFAULT 0
) WITH (fillfactor = 80);
CREATE INDEX tunnels_node ON tunnels (node_id);

-- Attempts that wait, and those that are being delivered from the queue: their claim_node
-- is the id of the node that delivers them.
CREATE TABLE queue (
    event_id    UUID NOT NULL,
    n           INTEGER NOT NULL,
    alias_id    BIGINT NOT NULL,
    received_at BIGINT NOT NULL,
    kind        SMALLINT NOT NULL,
    released    SMALLINT NOT NULL,
    bytes       BIGINT NOT NULL,
    claim_node  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (alias_id, received_at, event_id, n)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02);
CREATE UNIQUE INDEX queue_attempt ON queue (event_id, n);
CREATE INDEX queue_claimed ON queue (alias_id) WHERE claim_node <> '';

-- Work that one node does for all: holder is the id of a node, until a time of the database.
CREATE TABLE leases (
    name   TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until  BIGINT NOT NULL
);

-- The last step of each spool that is in this database.
CREATE TABLE spool_marks (
    spool TEXT PRIMARY KEY,
    step  BIGINT NOT NULL
);

-- What all nodes share: the SSH host key, and what ACME keeps.
CREATE TABLE shared_files (
    name        TEXT PRIMARY KEY,
    value       BYTEA NOT NULL,
    modified_at BIGINT NOT NULL
);

-- The id of a node of earlier versions was its data dir and its start.
UPDATE attempts SET claim_node = claim_node || '/' || claim_boot, claim_boot = 0 WHERE state = 1;

-- The node that runs a call; status is 0 until it ends.
ALTER TABLE idempotency ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE idempotency DROP COLUMN boot;

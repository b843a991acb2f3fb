-- +goose Up
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
    schema_version  INTEGER NOT NULL,
    started_at      INTEGER NOT NULL,
    seen_at         INTEGER NOT NULL,
    beat            INTEGER NOT NULL,
    state           TEXT NOT NULL,
    spool_steps     INTEGER NOT NULL DEFAULT 0,
    clock_offset_us INTEGER NOT NULL DEFAULT 0,
    feed            TEXT NOT NULL DEFAULT '',
    accounts        TEXT NOT NULL DEFAULT ''
) STRICT;

-- The names of all nodes that ever were: attempts keep the id of the node that ran them.
CREATE TABLE node_names (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;

-- The newest tunnel of each alias. tunnel_id is random and new with each attachment.
CREATE TABLE tunnels (
    alias_id    INTEGER PRIMARY KEY,
    tunnel_id   TEXT NOT NULL UNIQUE,
    node_id     TEXT NOT NULL,
    account_id  INTEGER NOT NULL,
    user_name   TEXT NOT NULL,
    since       INTEGER NOT NULL,
    client      TEXT NOT NULL,
    remote_addr TEXT NOT NULL,
    target      TEXT NOT NULL,
    host_header TEXT NOT NULL,
    lazy_dial   INTEGER NOT NULL,
    state       TEXT NOT NULL,
    requests    INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tunnels_node ON tunnels (node_id);

-- Attempts that wait, and those that are being delivered from the queue: their claim_node
-- is the id of the node that delivers them.
CREATE TABLE queue (
    event_id    BLOB NOT NULL,
    n           INTEGER NOT NULL,
    alias_id    INTEGER NOT NULL,
    received_at INTEGER NOT NULL,
    kind        INTEGER NOT NULL,
    released    INTEGER NOT NULL,
    bytes       INTEGER NOT NULL,
    claim_node  TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (alias_id, received_at, event_id, n)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX queue_attempt ON queue (event_id, n);
CREATE INDEX queue_claimed ON queue (alias_id) WHERE claim_node <> '';

-- Work that one node does for all: holder is the id of a node, until a time of the database.
CREATE TABLE leases (
    name   TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until  INTEGER NOT NULL
) STRICT;

-- The last step of each spool that is in this database.
CREATE TABLE spool_marks (
    spool TEXT PRIMARY KEY,
    step  INTEGER NOT NULL
) STRICT;

-- What all nodes share: the SSH host key, and what ACME keeps.
CREATE TABLE shared_files (
    name        TEXT PRIMARY KEY,
    value       BLOB NOT NULL,
    modified_at INTEGER NOT NULL
) STRICT;

-- The id of a node of earlier versions was its data dir and its start.
UPDATE attempts SET claim_node = claim_node || '/' || claim_boot, claim_boot = 0 WHERE state = 1;

-- The node that runs a call; status is 0 until it ends.
ALTER TABLE idempotency ADD COLUMN node TEXT NOT NULL DEFAULT '';
ALTER TABLE idempotency DROP COLUMN boot;

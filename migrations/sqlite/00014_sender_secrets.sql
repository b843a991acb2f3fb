-- +goose Up
-- Secrets by which senders sign, sealed: key_id names the key that opens one. A row counts
-- only while owner_id owns the alias: a node of the version before transfers an alias without
-- deleting them. last_valid_at = 0: it never fitted.
CREATE TABLE sender_secrets (
    id            TEXT PRIMARY KEY,
    alias_id      INTEGER NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    owner_id      INTEGER NOT NULL,
    provider      TEXT NOT NULL,
    custom        TEXT NOT NULL,
    path          TEXT NOT NULL,
    sign          INTEGER NOT NULL,
    key_id        TEXT NOT NULL,
    sealed        BLOB NOT NULL,
    created_at    INTEGER NOT NULL,
    created_by    TEXT NOT NULL,
    last_valid_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX sender_secrets_alias ON sender_secrets (alias_id);

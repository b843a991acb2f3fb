-- +goose Up
-- SSH keys that wait until a person approves them, at whichever node. hash is that of the
-- link, proof that of the link and the code. ended says how it ended; '' = it waits.
CREATE TABLE enrolments (
    hash           BLOB PRIMARY KEY,
    proof          BLOB NOT NULL,
    tries          INTEGER NOT NULL DEFAULT 0,
    fingerprint    TEXT NOT NULL,
    authorized_key TEXT NOT NULL,
    remote         TEXT NOT NULL,
    client         TEXT NOT NULL,
    requested_at   INTEGER NOT NULL,
    expires_at     INTEGER NOT NULL,
    ended          TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX enrolments_waiting ON enrolments (fingerprint) WHERE ended = '';

-- +goose Up
-- SSH keys that wait until a person approves them, at whichever node. hash is that of the
-- link, proof that of the link and the code. ended says how it ended; '' = it waits.
CREATE TABLE enrolments (
    hash           BYTEA PRIMARY KEY,
    proof          BYTEA NOT NULL,
    tries          INTEGER NOT NULL DEFAULT 0,
    fingerprint    TEXT NOT NULL,
    authorized_key TEXT NOT NULL,
    remote         TEXT NOT NULL,
    client         TEXT NOT NULL,
    requested_at   BIGINT NOT NULL,
    expires_at     BIGINT NOT NULL,
    ended          TEXT NOT NULL DEFAULT ''
);
CREATE INDEX enrolments_waiting ON enrolments (fingerprint) WHERE ended = '';

-- +goose Up
-- What a person noted about an event. A row with pinned = 1 keeps its event from retention.
-- An event without any of these has no row.
CREATE TABLE event_marks (
    alias_id BIGINT NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    event_id UUID NOT NULL,
    pinned   SMALLINT NOT NULL,
    label    TEXT NOT NULL,
    note     TEXT NOT NULL,
    PRIMARY KEY (alias_id, event_id)
);
CREATE UNIQUE INDEX event_marks_event ON event_marks (event_id);

-- The searches that an account keeps by name for an alias; words as they are typed.
CREATE TABLE saved_searches (
    alias_id   BIGINT NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    account_id BIGINT NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    words      TEXT NOT NULL,
    PRIMARY KEY (alias_id, account_id, name)
);

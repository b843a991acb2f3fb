-- +goose Up
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

CREATE TABLE nodes (
    node TEXT PRIMARY KEY,
    boot INTEGER NOT NULL
) STRICT;

-- A removed account keeps its row: aliases still point to it until they are handed on.
CREATE TABLE accounts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    admin      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    removed_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE UNIQUE INDEX accounts_name ON accounts (name) WHERE removed_at = 0;

CREATE TABLE keys (
    id             TEXT PRIMARY KEY,
    account_id     INTEGER NOT NULL REFERENCES accounts (id),
    name           TEXT NOT NULL,
    fingerprint    TEXT NOT NULL UNIQUE,
    type           TEXT NOT NULL,
    authorized_key TEXT NOT NULL,
    created_at     INTEGER NOT NULL,
    last_used_at   INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX keys_account ON keys (account_id);

CREATE TABLE sessions (
    id           TEXT PRIMARY KEY,
    hash         BLOB NOT NULL UNIQUE,
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    created_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    remote       TEXT NOT NULL,
    user_agent   TEXT NOT NULL
) STRICT;
CREATE INDEX sessions_account ON sessions (account_id);

-- One-time links: kind is login or invite.
CREATE TABLE links (
    hash       BLOB PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    kind       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE aliases (
    id                  INTEGER PRIMARY KEY AUTOINCREMENT,
    name                TEXT NOT NULL UNIQUE,
    owner_id            INTEGER NOT NULL REFERENCES accounts (id),
    created_at          INTEGER NOT NULL,
    last_online_at      INTEGER NOT NULL DEFAULT 0,
    offline_status      INTEGER NOT NULL,
    auto_deliver        INTEGER NOT NULL,
    host_header         TEXT NOT NULL,
    forwarded           INTEGER NOT NULL,
    fresh_connections   INTEGER NOT NULL,
    response_timeout_us INTEGER,
    retention_us        INTEGER,
    paused              INTEGER NOT NULL
) STRICT;
CREATE INDEX aliases_owner ON aliases (owner_id);

CREATE TABLE members (
    alias_id   INTEGER NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    PRIMARY KEY (alias_id, account_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX members_account ON members (account_id);

-- Names of removed aliases, kept from other accounts for a while.
CREATE TABLE kept_names (
    name       TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL,
    until      INTEGER NOT NULL
) STRICT;

-- Ids of removed aliases whose events are still to be deleted.
CREATE TABLE removed_aliases (
    alias_id   INTEGER PRIMARY KEY,
    removed_at INTEGER NOT NULL
) STRICT;

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    hash         BLOB NOT NULL UNIQUE,
    account_id   INTEGER NOT NULL REFERENCES accounts (id),
    name         TEXT NOT NULL,
    scopes       INTEGER NOT NULL,
    alias_id     INTEGER REFERENCES aliases (id) ON DELETE CASCADE,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER NOT NULL,
    last_used_at INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX tokens_account ON tokens (account_id);

CREATE TABLE idempotency (
    credential TEXT NOT NULL,
    key        TEXT NOT NULL,
    target     TEXT NOT NULL,
    boot       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    status     INTEGER NOT NULL DEFAULT 0,
    body       BLOB,
    PRIMARY KEY (credential, key)
) STRICT;

CREATE TABLE audit (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    actor      TEXT NOT NULL,
    account_id INTEGER NOT NULL,
    subject_id INTEGER NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    detail     TEXT NOT NULL
) STRICT;

-- Changes that other processes have to hear of; polled by the serving one.
CREATE TABLE revisions (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    at         INTEGER NOT NULL,
    origin     TEXT NOT NULL,
    kind       TEXT NOT NULL,
    alias_id   INTEGER NOT NULL,
    event_id   BLOB,
    n          INTEGER NOT NULL,
    account_id INTEGER NOT NULL,
    credential TEXT NOT NULL
) STRICT;

-- status, latency_us, error_* and state repeat what the attempts say, for lists;
-- ended_n is the highest number of an attempt that ended.
CREATE TABLE events (
    id                BLOB NOT NULL UNIQUE,
    alias_id          INTEGER NOT NULL,
    received_at       INTEGER NOT NULL,
    asked_at          INTEGER NOT NULL,
    remote            TEXT NOT NULL,
    tls               INTEGER NOT NULL,
    method            TEXT NOT NULL,
    target            BLOB NOT NULL,
    http_minor        INTEGER NOT NULL,
    host              TEXT NOT NULL,
    provider_name     TEXT NOT NULL,
    provider_type     TEXT NOT NULL,
    provider_delivery TEXT NOT NULL,
    signed_at         INTEGER NOT NULL,
    tolerance_us      INTEGER NOT NULL,
    state             INTEGER NOT NULL,
    error_code        TEXT NOT NULL,
    error_message     TEXT NOT NULL,
    status            INTEGER NOT NULL,
    latency_us        INTEGER,
    attempts          INTEGER NOT NULL,
    ended_n           INTEGER NOT NULL,
    blocker           TEXT NOT NULL,
    req_size          INTEGER NOT NULL,
    PRIMARY KEY (alias_id, id)
) STRICT, WITHOUT ROWID;

-- bytes is what the request weighs in the queue.
CREATE TABLE attempts (
    event_id       BLOB NOT NULL,
    n              INTEGER NOT NULL,
    alias_id       INTEGER NOT NULL,
    kind           INTEGER NOT NULL,
    state          INTEGER NOT NULL,
    received_at    INTEGER NOT NULL,
    started_at     INTEGER NOT NULL,
    ended_at       INTEGER NOT NULL,
    actor          TEXT NOT NULL,
    error_code     TEXT NOT NULL,
    error_message  TEXT NOT NULL,
    released       INTEGER NOT NULL,
    from_queue     INTEGER NOT NULL,
    connection     TEXT NOT NULL,
    identical      INTEGER,
    timing         BLOB,
    has_response   INTEGER NOT NULL,
    status         INTEGER NOT NULL,
    response_state TEXT NOT NULL,
    claim_node     TEXT NOT NULL,
    claim_boot     INTEGER NOT NULL,
    bytes          INTEGER NOT NULL,
    PRIMARY KEY (event_id, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX attempts_queued ON attempts (alias_id, received_at, event_id, n, kind, released, bytes) WHERE state = 0;
CREATE INDEX attempts_delivering ON attempts (alias_id) WHERE state = 1;

-- n = 0 is the request, n = k what attempt k sent and received. extra is the added
-- lines of the request, or the head as sent where it differs; interim is a list of
-- 1xx heads, each with its length as uvarint before it.
CREATE TABLE payloads (
    event_id BLOB NOT NULL,
    n        INTEGER NOT NULL,
    head     BLOB,
    lines    BLOB,
    framing  INTEGER NOT NULL,
    codec    INTEGER NOT NULL,
    body     BLOB,
    parts    INTEGER NOT NULL,
    stored   INTEGER NOT NULL,
    size     INTEGER NOT NULL,
    sha256   BLOB,
    state    TEXT NOT NULL,
    extra    BLOB,
    interim  BLOB,
    PRIMARY KEY (event_id, n)
) STRICT;

CREATE TABLE body_chunks (
    event_id BLOB NOT NULL,
    n        INTEGER NOT NULL,
    i        INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (event_id, n, i)
) STRICT;

CREATE TABLE shares (
    id         TEXT PRIMARY KEY,
    hash       BLOB NOT NULL UNIQUE,
    event_id   BLOB NOT NULL,
    alias_id   INTEGER NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    view       INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    uses       INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX shares_event ON shares (event_id);
CREATE INDEX shares_alias ON shares (alias_id);

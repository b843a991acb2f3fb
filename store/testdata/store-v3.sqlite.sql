PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);
INSERT INTO goose_db_version VALUES(1,0,1,'2026-11-22 16:19:58');
INSERT INTO goose_db_version VALUES(2,1,1,'2026-11-22 16:19:58');
INSERT INTO goose_db_version VALUES(3,2,1,'2026-11-22 16:19:58');
INSERT INTO goose_db_version VALUES(4,3,1,'2026-11-22 16:19:58');
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
INSERT INTO meta VALUES('serving','node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco/1');
CREATE TABLE nodes (
    node TEXT PRIMARY KEY,
    boot INTEGER NOT NULL
) STRICT;
INSERT INTO nodes VALUES('node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco',1);
CREATE TABLE accounts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    admin      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    removed_at INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO accounts VALUES(1,'alice',0,1795364398247442,0);
INSERT INTO accounts VALUES(2,'bob',1,1795364398247981,0);
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
CREATE TABLE links (
    hash       BLOB PRIMARY KEY,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    kind       TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;
INSERT INTO links VALUES(X'22367188281ba889bb1fd8416fc064ad1df68f96d7162f627fb1e522b50da372',2,'login',1795364398249213,1795365298249213);
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
INSERT INTO aliases VALUES(1,'hooks',1,1795364398247646,0,503,0,'preserve',1,0,NULL,1576800000000000,0);
CREATE TABLE members (
    alias_id   INTEGER NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    PRIMARY KEY (alias_id, account_id)
) STRICT, WITHOUT ROWID;
INSERT INTO members VALUES(1,2);
CREATE TABLE kept_names (
    name       TEXT PRIMARY KEY,
    account_id INTEGER NOT NULL,
    until      INTEGER NOT NULL
) STRICT;
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
, renewal INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO tokens VALUES('tok_3YdPgeG9-EpxcFDz',X'32ed644cfffe5c98e81ddbf02c31d8eee4ed590fb01d697493a4d1f826255d4b',2,'ci',1,NULL,1795364398249027,0,0,0);
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
INSERT INTO idempotency VALUES('','key','POST /replay',1,1795364398249295,200,X'7b7d');
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
INSERT INTO audit VALUES(1,1795364398247530,'system',0,1,'user.add','alice','');
INSERT INTO audit VALUES(2,1795364398247778,'system',0,1,'alias.add','hooks','owner alice');
INSERT INTO audit VALUES(3,1795364398248039,'system',0,2,'user.add','bob','admin');
INSERT INTO audit VALUES(4,1795364398248204,'system',0,2,'member.add','hooks','bob');
INSERT INTO audit VALUES(5,1795364398248740,'system',0,1,'alias.set','hooks','offlineStatus 202 -> 503, forwarded off -> on, retention the server''s -> 18250d');
INSERT INTO audit VALUES(6,1795364398249117,'system',0,2,'token.add','tok_3YdPgeG9-EpxcFDz','ci');
INSERT INTO audit VALUES(7,1795364398249229,'system',0,2,'login.add','bob','');
INSERT INTO audit VALUES(8,1795364398251580,'system',0,1,'share.add','shr_RJd-chy6vE5uRk90','evt_01m820x95be779sanzmnwkv0m4');
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
INSERT INTO revisions VALUES(1,1795364398247903,'O3Iq0HgOAopv6r9pCeq80j0b2Krulm2Pz9R9tlHqQcA','alias',1,NULL,0,1,'');
INSERT INTO revisions VALUES(2,1795364398248218,'O3Iq0HgOAopv6r9pCeq80j0b2Krulm2Pz9R9tlHqQcA','alias',1,NULL,0,2,'');
INSERT INTO revisions VALUES(3,1795364398248826,'O3Iq0HgOAopv6r9pCeq80j0b2Krulm2Pz9R9tlHqQcA','alias',1,NULL,0,0,'');
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
INSERT INTO events VALUES(X'01a2040ea4a9707dadae0b2116a928cc',1,1795364398249391,1795364398249391,'192.0.2.1:4711',0,'POST',X'2f736d616c6c',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',4);
INSERT INTO events VALUES(X'01a2040ea4aa7101ad382c187a4782f8',1,1795364398250667,1795364398250667,'192.0.2.1:4711',0,'POST',X'2f6c61726765',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',8);
INSERT INTO events VALUES(X'01a2040ea4aa71028f1999cb0f4776a0',1,1795364398250940,1795364398250940,'192.0.2.1:4711',0,'POST',X'2f6661696c6564',1,'hooks.example.com','','','',0,0,3,'local-refused','refused',0,NULL,1,1,'',4);
INSERT INTO events VALUES(X'01a2040ea4ab71cd89ba0feac390aa8c',1,1795364398251080,1795364398251080,'192.0.2.1:4711',0,'POST',X'2f72756e6e696e67',1,'hooks.example.com','','','',0,0,1,'','',0,NULL,1,0,'',4);
INSERT INTO events VALUES(X'01a2040ea4ab71ce9caabfa5793d8284',1,1795364398251143,1795364398251143,'192.0.2.1:4711',0,'POST',X'2f736861726564',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',4);
INSERT INTO events VALUES(X'01a2040ea4ab71cfb9002f00006db170',1,1795364398251644,1795364398251644,'192.0.2.1:4711',0,'POST',X'2f717565756564',1,'hooks.example.com','','','',0,0,0,'','',0,NULL,1,0,'',4);
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
INSERT INTO attempts VALUES(X'01a2040ea4a9707dadae0b2116a928cc',1,1,0,2,1795364398249391,1795364398249391,1795364398250370,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco',1,72);
INSERT INTO attempts VALUES(X'01a2040ea4aa7101ad382c187a4782f8',1,1,0,2,1795364398250667,1795364398250667,1795364398250836,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco',1,76);
INSERT INTO attempts VALUES(X'01a2040ea4aa71028f1999cb0f4776a0',1,1,0,3,1795364398250940,1795364398250940,1795364398251008,'','local-refused','refused',0,0,'',NULL,NULL,0,0,'','node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco',1,73);
INSERT INTO attempts VALUES(X'01a2040ea4ab71cd89ba0feac390aa8c',1,1,0,1,1795364398251080,1795364398251080,0,'','','',0,0,'',NULL,NULL,0,0,'','node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco',1,74);
INSERT INTO attempts VALUES(X'01a2040ea4ab71ce9caabfa5793d8284',1,1,0,2,1795364398251143,1795364398251143,1795364398251220,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','node_l7jr-ixpzpyhuRZPKvpqOHLVSNigzdg0jzYUs7hGBco',1,73);
INSERT INTO attempts VALUES(X'01a2040ea4ab71cfb9002f00006db170',1,1,0,0,1795364398251644,0,0,'','','',0,0,'',NULL,NULL,0,0,'','',0,73);
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
INSERT INTO payloads VALUES(X'01a2040ea4a9707dadae0b2116a928cc',0,X'504f5354202f736d616c6c20485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2040ea4a9707dadae0b2116a928cc',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2040ea4aa7101ad382c187a4782f8',0,X'504f5354202f6c6172676520485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,NULL,2,8,8,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2040ea4aa7101ad382c187a4782f8',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2040ea4aa71028f1999cb0f4776a0',0,X'504f5354202f6661696c656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2040ea4ab71cd89ba0feac390aa8c',0,X'504f5354202f72756e6e696e6720485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2040ea4ab71ce9caabfa5793d8284',0,X'504f5354202f73686172656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2040ea4ab71ce9caabfa5793d8284',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2040ea4ab71cfb9002f00006db170',0,X'504f5354202f71756575656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
CREATE TABLE body_chunks (
    event_id BLOB NOT NULL,
    n        INTEGER NOT NULL,
    i        INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (event_id, n, i)
) STRICT;
INSERT INTO body_chunks VALUES(X'01a2040ea4aa7101ad382c187a4782f8',0,0,X'70617274');
INSERT INTO body_chunks VALUES(X'01a2040ea4aa7101ad382c187a4782f8',0,1,X'70617274');
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
, one_use INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO shares VALUES('shr_RJd-chy6vE5uRk90',X'51f768bb5cadfeebdf96891559c26f38d859f361ccdaa488707f19f002b07874',X'01a2040ea4ab71ce9caabfa5793d8284',1,1,1,1795364398251465,0,0,0);
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('goose_db_version',4);
INSERT INTO sqlite_sequence VALUES('accounts',2);
INSERT INTO sqlite_sequence VALUES('audit',8);
INSERT INTO sqlite_sequence VALUES('aliases',1);
INSERT INTO sqlite_sequence VALUES('revisions',3);
CREATE UNIQUE INDEX accounts_name ON accounts (name) WHERE removed_at = 0;
CREATE INDEX keys_account ON keys (account_id);
CREATE INDEX sessions_account ON sessions (account_id);
CREATE INDEX aliases_owner ON aliases (owner_id);
CREATE INDEX members_account ON members (account_id);
CREATE INDEX tokens_account ON tokens (account_id);
CREATE INDEX attempts_queued ON attempts (alias_id, received_at, event_id, n, kind, released, bytes) WHERE state = 0;
CREATE INDEX attempts_delivering ON attempts (alias_id) WHERE state = 1;
CREATE INDEX shares_event ON shares (event_id);
CREATE INDEX shares_alias ON shares (alias_id);
COMMIT;

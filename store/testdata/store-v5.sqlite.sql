PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);
INSERT INTO goose_db_version VALUES(1,0,1,'2026-11-22 21:50:29');
INSERT INTO goose_db_version VALUES(2,1,1,'2026-11-22 21:50:29');
INSERT INTO goose_db_version VALUES(3,2,1,'2026-11-22 21:50:29');
INSERT INTO goose_db_version VALUES(4,3,1,'2026-11-22 21:50:29');
INSERT INTO goose_db_version VALUES(5,4,1,'2026-11-22 21:50:29');
INSERT INTO goose_db_version VALUES(6,5,1,'2026-11-22 21:50:29');
CREATE TABLE meta (
    name  TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
CREATE TABLE accounts (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    name       TEXT NOT NULL,
    admin      INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    removed_at INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO accounts VALUES(1,'alice',0,1795384229790121,0);
INSERT INTO accounts VALUES(2,'bob',1,1795384229790624,0);
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
INSERT INTO links VALUES(X'cd218724702bceb65dc4284247faa428c2a42d0ef897e50ed4d28ca1ffd7a488',2,'login',1795384229791431,1795385129791431);
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
INSERT INTO aliases VALUES(1,'hooks',1,1795384229790328,0,503,0,'preserve',1,0,NULL,1576800000000000,0);
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
INSERT INTO tokens VALUES('tok_PX_8KxflRnVPT7ar',X'ae23320334bbb459065d7f210537156a64894ab830afc5309d1147db40d1ff79',2,'ci',1,NULL,1795384229791208,0,0,0);
CREATE TABLE idempotency (
    credential TEXT NOT NULL,
    key        TEXT NOT NULL,
    target     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    status     INTEGER NOT NULL DEFAULT 0,
    body       BLOB, node TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (credential, key)
) STRICT;
INSERT INTO idempotency VALUES('','key','POST /replay',1795384229791498,200,X'7b7d','vm/L3SKG3WXVR6HIQA5WKVZCXA6CO');
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
INSERT INTO audit VALUES(1,1795384229790217,'system',0,1,'user.add','alice','');
INSERT INTO audit VALUES(2,1795384229790426,'system',0,1,'alias.add','hooks','owner alice');
INSERT INTO audit VALUES(3,1795384229790676,'system',0,2,'user.add','bob','admin');
INSERT INTO audit VALUES(4,1795384229790825,'system',0,2,'member.add','hooks','bob');
INSERT INTO audit VALUES(5,1795384229790977,'system',0,1,'alias.set','hooks','offlineStatus 202 -> 503, forwarded off -> on, retention the server''s -> 18250d');
INSERT INTO audit VALUES(6,1795384229791304,'system',0,2,'token.add','tok_PX_8KxflRnVPT7ar','ci');
INSERT INTO audit VALUES(7,1795384229791448,'system',0,2,'login.add','bob','');
INSERT INTO audit VALUES(8,1795384229792764,'system',0,1,'share.add','shr_mIxQAMAzgWnZPVfS','evt_01m82ktfx0effvyb3xfz0wra75');
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
INSERT INTO revisions VALUES(1,1795384229790551,'Uoj0D048en-lSgRNtIQCzfVagZA7NeEXamkWa31h_iM','alias',1,NULL,0,1,'');
INSERT INTO revisions VALUES(2,1795384229790837,'Uoj0D048en-lSgRNtIQCzfVagZA7NeEXamkWa31h_iM','alias',1,NULL,0,2,'');
INSERT INTO revisions VALUES(3,1795384229791051,'Uoj0D048en-lSgRNtIQCzfVagZA7NeEXamkWa31h_iM','alias',1,NULL,0,0,'');
INSERT INTO revisions VALUES(4,1795384229793232,'Uoj0D048en-lSgRNtIQCzfVagZA7NeEXamkWa31h_iM','tunnel',0,NULL,0,0,'');
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
INSERT INTO events VALUES(X'01a2053d3f9f72d3952ff52b8bfcbe5c',1,1795384229791603,1795384229791603,'192.0.2.1:4711',0,'POST',X'2f736d616c6c',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',4);
INSERT INTO events VALUES(X'01a2053d3f9f72d49a6119772261d129',1,1795384229791888,1795384229791888,'192.0.2.1:4711',0,'POST',X'2f6c61726765',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',8);
INSERT INTO events VALUES(X'01a2053d3fa073dd9013116cd6b330ec',1,1795384229792142,1795384229792142,'192.0.2.1:4711',0,'POST',X'2f6661696c6564',1,'hooks.example.com','','','',0,0,3,'local-refused','refused',0,NULL,1,1,'',4);
INSERT INTO events VALUES(X'01a2053d3fa073deb8fa27389c25e96e',1,1795384229792302,1795384229792302,'192.0.2.1:4711',0,'POST',X'2f72756e6e696e67',1,'hooks.example.com','','','',0,0,1,'','',0,NULL,1,0,'',4);
INSERT INTO events VALUES(X'01a2053d3fa073dfbf2c7d7fc1cc28e5',1,1795384229792371,1795384229792371,'192.0.2.1:4711',0,'POST',X'2f736861726564',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',4);
INSERT INTO events VALUES(X'01a2053d3fa073e0a83752df23ba55b1',1,1795384229792826,1795384229792826,'192.0.2.1:4711',0,'POST',X'2f717565756564',1,'hooks.example.com','','','',0,0,0,'','',0,NULL,1,0,'',4);
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
INSERT INTO attempts VALUES(X'01a2053d3f9f72d3952ff52b8bfcbe5c',1,1,0,2,1795384229791603,1795384229791603,1795384229791769,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','vm/L3SKG3WXVR6HIQA5WKVZCXA6CO',0,72);
INSERT INTO attempts VALUES(X'01a2053d3f9f72d49a6119772261d129',1,1,0,2,1795384229791888,1795384229791888,1795384229792053,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','vm/L3SKG3WXVR6HIQA5WKVZCXA6CO',0,76);
INSERT INTO attempts VALUES(X'01a2053d3fa073dd9013116cd6b330ec',1,1,0,3,1795384229792142,1795384229792142,1795384229792224,'','local-refused','refused',0,0,'',NULL,NULL,0,0,'','vm/L3SKG3WXVR6HIQA5WKVZCXA6CO',0,73);
INSERT INTO attempts VALUES(X'01a2053d3fa073deb8fa27389c25e96e',1,1,0,1,1795384229792302,1795384229792302,0,'','','',0,0,'',NULL,NULL,0,0,'','vm/L3SKG3WXVR6HIQA5WKVZCXA6CO',0,74);
INSERT INTO attempts VALUES(X'01a2053d3fa073dfbf2c7d7fc1cc28e5',1,1,0,2,1795384229792371,1795384229792371,1795384229792438,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','vm/L3SKG3WXVR6HIQA5WKVZCXA6CO',0,73);
INSERT INTO attempts VALUES(X'01a2053d3fa073e0a83752df23ba55b1',1,1,0,0,1795384229792826,0,0,'','','',0,0,'',NULL,NULL,0,0,'','',0,73);
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
INSERT INTO payloads VALUES(X'01a2053d3f9f72d3952ff52b8bfcbe5c',0,X'504f5354202f736d616c6c20485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2053d3f9f72d3952ff52b8bfcbe5c',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2053d3f9f72d49a6119772261d129',0,X'504f5354202f6c6172676520485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,NULL,2,8,8,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2053d3f9f72d49a6119772261d129',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2053d3fa073dd9013116cd6b330ec',0,X'504f5354202f6661696c656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2053d3fa073deb8fa27389c25e96e',0,X'504f5354202f72756e6e696e6720485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2053d3fa073dfbf2c7d7fc1cc28e5',0,X'504f5354202f73686172656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2053d3fa073dfbf2c7d7fc1cc28e5',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2053d3fa073e0a83752df23ba55b1',0,X'504f5354202f71756575656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
CREATE TABLE body_chunks (
    event_id BLOB NOT NULL,
    n        INTEGER NOT NULL,
    i        INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (event_id, n, i)
) STRICT;
INSERT INTO body_chunks VALUES(X'01a2053d3f9f72d49a6119772261d129',0,0,X'70617274');
INSERT INTO body_chunks VALUES(X'01a2053d3f9f72d49a6119772261d129',0,1,X'70617274');
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
INSERT INTO shares VALUES('shr_mIxQAMAzgWnZPVfS',X'1098da2c1883266c4dbe9287345dd96206a57c280538cd993c0630ffd49903dc',X'01a2053d3fa073dfbf2c7d7fc1cc28e5',1,1,1,1795384229792695,0,0,0);
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
CREATE TABLE node_names (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
INSERT INTO node_names VALUES('vm/L3SKG3WXVR6HIQA5WKVZCXA6CO','vm');
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
INSERT INTO queue VALUES(X'01a2053d3fa073e0a83752df23ba55b1',1,1,1795384229792826,0,0,73,'');
CREATE TABLE leases (
    name   TEXT PRIMARY KEY,
    holder TEXT NOT NULL,
    until  INTEGER NOT NULL
) STRICT;
CREATE TABLE spool_marks (
    spool TEXT PRIMARY KEY,
    step  INTEGER NOT NULL
) STRICT;
CREATE TABLE shared_files (
    name        TEXT PRIMARY KEY,
    value       BLOB NOT NULL,
    modified_at INTEGER NOT NULL
) STRICT;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('goose_db_version',6);
INSERT INTO sqlite_sequence VALUES('accounts',2);
INSERT INTO sqlite_sequence VALUES('audit',8);
INSERT INTO sqlite_sequence VALUES('aliases',1);
INSERT INTO sqlite_sequence VALUES('revisions',4);
CREATE UNIQUE INDEX accounts_name ON accounts (name) WHERE removed_at = 0;
CREATE INDEX keys_account ON keys (account_id);
CREATE INDEX sessions_account ON sessions (account_id);
CREATE INDEX aliases_owner ON aliases (owner_id);
CREATE INDEX members_account ON members (account_id);
CREATE INDEX tokens_account ON tokens (account_id);
CREATE INDEX attempts_delivering ON attempts (alias_id) WHERE state = 1;
CREATE INDEX shares_event ON shares (event_id);
CREATE INDEX shares_alias ON shares (alias_id);
CREATE INDEX tunnels_node ON tunnels (node_id);
CREATE UNIQUE INDEX queue_attempt ON queue (event_id, n);
CREATE INDEX queue_claimed ON queue (alias_id) WHERE claim_node <> '';
COMMIT;

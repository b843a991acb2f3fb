PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
CREATE TABLE goose_db_version (
		id INTEGER PRIMARY KEY AUTOINCREMENT,
		version_id INTEGER NOT NULL,
		is_applied INTEGER NOT NULL,
		tstamp TIMESTAMP DEFAULT (datetime('now'))
	);
INSERT INTO goose_db_version VALUES(1,0,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(2,1,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(3,2,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(4,3,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(5,4,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(6,5,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(7,6,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(8,7,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(9,8,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(10,9,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(11,10,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(12,11,1,'2026-11-26 19:39:28');
INSERT INTO goose_db_version VALUES(13,12,1,'2026-11-26 19:39:28');
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
INSERT INTO accounts VALUES(1,'alice',0,1795721968491014,0);
INSERT INTO accounts VALUES(2,'bob',1,1795721968491741,0);
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
INSERT INTO links VALUES(X'5211301b3de2398790505965b565af07668d46ce3b43af67d1cf890cfdfd68b5',2,'login',1795721968493926,1795722868493926);
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
INSERT INTO aliases VALUES(1,'hooks',1,1795721968491249,0,503,0,'preserve',1,0,NULL,1576800000000000,0);
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
INSERT INTO tokens VALUES('tok_vhzdV2l9BLZqDpYW',X'c267f8c6711de595ddb470cb608bfc2393293db8d264691eb69ca96a8917d70b',2,'ci',1,NULL,1795721968493145,0,0,0);
CREATE TABLE idempotency (
    credential TEXT NOT NULL,
    key        TEXT NOT NULL,
    target     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    status     INTEGER NOT NULL DEFAULT 0,
    body       BLOB, node TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (credential, key)
) STRICT;
INSERT INTO idempotency VALUES('','key','POST /replay',1795721968494022,200,X'7b7d','vm/O226CT2KH6CY2AIME6ELDQU3GQ');
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
INSERT INTO audit VALUES(1,1795721968491115,'system',0,1,'user.add','alice','');
INSERT INTO audit VALUES(2,1795721968491456,'system',0,1,'alias.add','hooks','owner alice');
INSERT INTO audit VALUES(3,1795721968491795,'system',0,2,'user.add','bob','admin');
INSERT INTO audit VALUES(4,1795721968492114,'system',0,2,'member.add','hooks','bob');
INSERT INTO audit VALUES(5,1795721968492442,'system',0,1,'alias.set','hooks','offlineStatus 202 -> 503, forwarded off -> on, retention the server''s -> 18250d');
INSERT INTO audit VALUES(6,1795721968493297,'system',0,2,'token.add','tok_vhzdV2l9BLZqDpYW','ci');
INSERT INTO audit VALUES(7,1795721968493952,'system',0,2,'login.add','bob','');
INSERT INTO audit VALUES(8,1795721968497468,'system',0,1,'share.add','shr_h2QDqJnxAA8k2rfy','evt_01m8cnxevgeehv080t5as225t4');
INSERT INTO audit VALUES(9,1795721968497886,'system',0,1,'event.mark','evt_01m8cnxevgeehv080t5as225t4','pinned, label july of hooks');
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
INSERT INTO revisions VALUES(1,1795721968491631,'wN0PmMKK-IlBRT9HC6nz6K6um_45lmkFXQuqylhCCuA','alias',1,NULL,0,1,'');
INSERT INTO revisions VALUES(2,1795721968492141,'wN0PmMKK-IlBRT9HC6nz6K6um_45lmkFXQuqylhCCuA','alias',1,NULL,0,2,'');
INSERT INTO revisions VALUES(3,1795721968492671,'wN0PmMKK-IlBRT9HC6nz6K6um_45lmkFXQuqylhCCuA','alias',1,NULL,0,0,'');
INSERT INTO revisions VALUES(4,1795721968498708,'wN0PmMKK-IlBRT9HC6nz6K6um_45lmkFXQuqylhCCuA','tunnel',0,NULL,0,0,'');
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
    req_size          INTEGER NOT NULL, host_refused_by TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (alias_id, id)
) STRICT, WITHOUT ROWID;
INSERT INTO events VALUES(X'01a2195ebb6e71dfb642172929640ea4',1,1795721968494226,1795721968494226,'192.0.2.1:4711',0,'POST',X'2f736d616c6c',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',4,'');
INSERT INTO events VALUES(X'01a2195ebb6f70049c3019589e892f83',1,1795721968495105,1795721968495105,'192.0.2.1:4711',0,'POST',X'2f6c61726765',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',8,'');
INSERT INTO events VALUES(X'01a2195ebb7073a1a6caeacd63c59bfd',1,1795721968496294,1795721968496294,'192.0.2.1:4711',0,'POST',X'2f6661696c6564',1,'hooks.example.com','','','',0,0,3,'local-refused','refused',0,NULL,1,1,'',4,'');
INSERT INTO events VALUES(X'01a2195ebb7073a29cfb3c02b9cadba6',1,1795721968496526,1795721968496526,'192.0.2.1:4711',0,'POST',X'2f72756e6e696e67',1,'hooks.example.com','','','',0,0,1,'','',0,NULL,1,0,'',4,'');
INSERT INTO events VALUES(X'01a2195ebb7073a3b0201a2ab2211744',1,1795721968496621,1795721968496621,'192.0.2.1:4711',0,'POST',X'2f736861726564',1,'hooks.example.com','','','',0,0,2,'','',200,1000000,1,1,'',4,'');
INSERT INTO events VALUES(X'01a2195ebb72713e913b2b0bba783bd7',1,1795721968498029,1795721968498029,'192.0.2.1:4711',0,'POST',X'2f717565756564',1,'hooks.example.com','','','',0,0,0,'','',0,NULL,1,0,'',4,'');
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
INSERT INTO attempts VALUES(X'01a2195ebb6e71dfb642172929640ea4',1,1,0,2,1795721968494226,1795721968494226,1795721968494565,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','vm/O226CT2KH6CY2AIME6ELDQU3GQ',0,72);
INSERT INTO attempts VALUES(X'01a2195ebb6f70049c3019589e892f83',1,1,0,2,1795721968495105,1795721968495105,1795721968495878,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','vm/O226CT2KH6CY2AIME6ELDQU3GQ',0,76);
INSERT INTO attempts VALUES(X'01a2195ebb7073a1a6caeacd63c59bfd',1,1,0,3,1795721968496294,1795721968496294,1795721968496398,'','local-refused','refused',0,0,'',NULL,NULL,0,0,'','vm/O226CT2KH6CY2AIME6ELDQU3GQ',0,73);
INSERT INTO attempts VALUES(X'01a2195ebb7073a29cfb3c02b9cadba6',1,1,0,1,1795721968496526,1795721968496526,0,'','','',0,0,'',NULL,NULL,0,0,'','vm/O226CT2KH6CY2AIME6ELDQU3GQ',0,74);
INSERT INTO attempts VALUES(X'01a2195ebb7073a3b0201a2ab2211744',1,1,0,2,1795721968496621,1795721968496621,1795721968496684,'','','',0,0,'',NULL,X'000000c0843d00',1,200,'complete','vm/O226CT2KH6CY2AIME6ELDQU3GQ',0,73);
INSERT INTO attempts VALUES(X'01a2195ebb72713e913b2b0bba783bd7',1,1,0,0,1795721968498029,0,0,'','','',0,0,'',NULL,NULL,0,0,'','',0,73);
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
INSERT INTO payloads VALUES(X'01a2195ebb6e71dfb642172929640ea4',0,X'504f5354202f736d616c6c20485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2195ebb6e71dfb642172929640ea4',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2195ebb6f70049c3019589e892f83',0,X'504f5354202f6c6172676520485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,NULL,2,8,8,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2195ebb6f70049c3019589e892f83',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2195ebb7073a1a6caeacd63c59bfd',0,X'504f5354202f6661696c656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2195ebb7073a29cfb3c02b9cadba6',0,X'504f5354202f72756e6e696e6720485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2195ebb7073a3b0201a2ab2211744',0,X'504f5354202f73686172656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
INSERT INTO payloads VALUES(X'01a2195ebb7073a3b0201a2ab2211744',1,X'485454502f312e3120323030204f4b0d0a0d0a',NULL,0,0,X'6f6b',0,2,2,X'0000000000000000000000000000000000000000000000000000000000000000','complete',X'73656e74',X'1c485454502f312e3120313033204561726c792048696e74730d0a0d0a');
INSERT INTO payloads VALUES(X'01a2195ebb72713e913b2b0bba783bd7',0,X'504f5354202f71756575656420485454502f312e310d0a486f73743a20686f6f6b732e6578616d706c652e636f6d0d0a436f6e74656e742d4c656e6774683a20340d0a0d0a',NULL,1,0,X'626f6479',0,4,4,X'0000000000000000000000000000000000000000000000000000000000000000','complete',NULL,NULL);
CREATE TABLE body_chunks (
    event_id BLOB NOT NULL,
    n        INTEGER NOT NULL,
    i        INTEGER NOT NULL,
    data     BLOB NOT NULL,
    PRIMARY KEY (event_id, n, i)
) STRICT;
INSERT INTO body_chunks VALUES(X'01a2195ebb6f70049c3019589e892f83',0,0,X'70617274');
INSERT INTO body_chunks VALUES(X'01a2195ebb6f70049c3019589e892f83',0,1,X'70617274');
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
INSERT INTO shares VALUES('shr_h2QDqJnxAA8k2rfy',X'49f0d9bded6c371cf2f090e8bb7d734dd6b95177d886df67778d3aeeab823aaf',X'01a2195ebb7073a3b0201a2ab2211744',1,1,1,1795721968497340,0,0,0);
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
, unreachable TEXT NOT NULL DEFAULT '') STRICT;
CREATE TABLE node_names (
    id   TEXT PRIMARY KEY,
    name TEXT NOT NULL
) STRICT;
INSERT INTO node_names VALUES('vm/O226CT2KH6CY2AIME6ELDQU3GQ','vm');
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
INSERT INTO queue VALUES(X'01a2195ebb72713e913b2b0bba783bd7',1,1,1795721968498029,0,0,73,'');
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
CREATE TABLE event_marks (
    alias_id INTEGER NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    event_id BLOB NOT NULL,
    pinned   INTEGER NOT NULL,
    label    TEXT NOT NULL,
    note     TEXT NOT NULL,
    PRIMARY KEY (alias_id, event_id)
) STRICT, WITHOUT ROWID;
INSERT INTO event_marks VALUES(1,X'01a2195ebb7073a3b0201a2ab2211744',1,'july','of the fixture');
CREATE TABLE saved_searches (
    alias_id   INTEGER NOT NULL REFERENCES aliases (id) ON DELETE CASCADE,
    account_id INTEGER NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
    name       TEXT NOT NULL,
    words      TEXT NOT NULL,
    PRIMARY KEY (alias_id, account_id, name)
) STRICT, WITHOUT ROWID;
INSERT INTO saved_searches VALUES(1,2,'errors','status:5xx');
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
CREATE TABLE refused_forwards (
    account_id INTEGER NOT NULL REFERENCES accounts (id),
    bind       TEXT NOT NULL,
    code       TEXT NOT NULL,
    message    TEXT NOT NULL,
    remote     TEXT NOT NULL,
    times      INTEGER NOT NULL,
    refused_at INTEGER NOT NULL,
    PRIMARY KEY (account_id, bind, code)
) STRICT;
CREATE TABLE storage_counters (
    node       TEXT NOT NULL,
    alias_id   INTEGER NOT NULL,
    bytes      INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (node, alias_id)
) STRICT;
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('goose_db_version',13);
INSERT INTO sqlite_sequence VALUES('accounts',2);
INSERT INTO sqlite_sequence VALUES('audit',9);
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
CREATE UNIQUE INDEX event_marks_event ON event_marks (event_id);
CREATE INDEX enrolments_waiting ON enrolments (fingerprint) WHERE ended = '';
CREATE INDEX storage_counters_updated ON storage_counters (updated_at);
COMMIT;

-- +goose Up
-- It inserts new events with their attempts and payloads, in one statement and one round trip,
-- and returns the ids of the events that it inserted; nothing of the others is inserted. Each
-- session keeps the plan of a function, through a pooler too: planning took longer than
-- inserting ten events (docs/performance.md). The parameters are the columns of events, of
-- attempts and of payloads, an array each. A change of these tables makes a function of
-- another name, because older nodes call this one until they are replaced.
--
-- Calls of unnest in a list of columns advance together, and a row goes straight on; unnest as
-- a table would first put every column into a list of its own.
-- +goose StatementBegin
CREATE FUNCTION insert_events_1 (
    uuid[], bigint[], bigint[], bigint[], text[], bigint[], text[], bytea[], bigint[], text[], text[], text[], text[],
    bigint[], bigint[], bigint[], text[], text[], bigint[], bigint[], bigint[], bigint[], text[], bigint[],
    uuid[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], bigint[], text[], text[], text[], bigint[],
    bigint[], text[], bigint[], bytea[], bigint[], bigint[], text[], text[], bigint[], bigint[],
    uuid[], bigint[], bytea[], bytea[], bigint[], bigint[], bytea[], bigint[], bigint[], bigint[], bytea[], text[],
    bytea[], bytea[]
) RETURNS SETOF UUID LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY WITH e AS (INSERT INTO events (
        id, alias_id, received_at, asked_at, remote, tls, method, target, http_minor, host, provider_name,
        provider_type, provider_delivery, signed_at, tolerance_us, state, error_code, error_message, status,
        latency_us, attempts, ended_n, blocker, req_size)
    SELECT
        unnest($1), unnest($2), unnest($3), unnest($4), unnest($5), unnest($6), unnest($7), unnest($8), unnest($9),
        unnest($10), unnest($11), unnest($12), unnest($13), unnest($14), unnest($15), unnest($16), unnest($17),
        unnest($18), unnest($19), unnest($20), unnest($21), unnest($22), unnest($23), unnest($24)
    ON CONFLICT DO NOTHING RETURNING id),
    a AS (INSERT INTO attempts (
        event_id, n, alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message,
        released, from_queue, connection, identical, timing, has_response, status, response_state, claim_node,
        claim_boot, bytes)
    SELECT * FROM (SELECT
        unnest($25), unnest($26), unnest($27), unnest($28), unnest($29), unnest($30), unnest($31), unnest($32),
        unnest($33), unnest($34), unnest($35), unnest($36), unnest($37), unnest($38), unnest($39), unnest($40),
        unnest($41), unnest($42), unnest($43), unnest($44), unnest($45), unnest($46)) v (
        event_id, n, alias_id, kind, state, received_at, started_at, ended_at, actor, error_code, error_message,
        released, from_queue, connection, identical, timing, has_response, status, response_state, claim_node,
        claim_boot, bytes)
    WHERE v.event_id IN (SELECT id FROM e)),
    p AS (INSERT INTO payloads (
        event_id, n, head, lines, framing, codec, body, parts, stored, size, sha256, state, extra, interim)
    SELECT * FROM (SELECT
        unnest($47), unnest($48), unnest($49), unnest($50), unnest($51), unnest($52), unnest($53), unnest($54),
        unnest($55), unnest($56), unnest($57), unnest($58), unnest($59), unnest($60)) v (
        event_id, n, head, lines, framing, codec, body, parts, stored, size, sha256, state, extra, interim)
    WHERE v.event_id IN (SELECT id FROM e))
    SELECT id FROM e;
END
$$;
-- +goose StatementEnd

package journal

import (
	"relay"
	"relay/store/db"
	"relay/store/events"
)

var (
	insertEvents   = db.InsertInto("events", events.EventColumns, events.EventTypes)
	insertAttempts = db.InsertInto("attempts", events.AttemptColumns, events.AttemptTypes)
	insertPayloads = db.InsertInto("payloads", events.PayloadColumns, events.PayloadTypes)
	insertChunks   = db.InsertInto("body_chunks", "event_id, n, i, data", "uuid bigint bigint bytea")
)

// insertWhole inserts events with their attempts and payloads.
var insertWhole = &db.Group{Function: events.InsertFunction, Inserts: []*db.Statement{insertEvents, insertAttempts, insertPayloads}}

// sweptLive matches the attempt of a live request that another node ended because it declared the claimant
// dead, unless there is a later attempt. The caller of such a request may have got its response, so the
// claimant's result replaces the state interrupted. An attempt from the queue stays interrupted, because it
// was queued again.
const sweptLive = `state = 4 AND error_code = '` + relay.StateInterrupted + `' AND from_queue = 0
	AND NOT EXISTS (SELECT 1 FROM events e WHERE e.id = attempts.event_id AND e.attempts > attempts.n)`

// finishAttempts ends attempts that the claimant is delivering. An upgraded attempt counts as delivered from
// the 101 on, and is finished once more when the connection ends. If the end of an attempt is stored so late
// that the caller has already got the error response-not-stored, a second finish replaces the stored end by
// one with that error.
var finishAttempts = db.NewStatement(
	`uuid bigint bigint bigint bigint text text text bigint bytea bigint bigint text`,
	`WITH v (vid, vn, vstate, vstarted, vended, vcode, vmessage, vconnection, videntical, vtiming, vresponse, vstatus, vrstate)
			AS (%s)
		UPDATE attempts SET state = v.vstate, released = CASE WHEN from_queue = 1 THEN released ELSE 0 END, started_at = CASE WHEN v.vstarted > 0 THEN v.vstarted ELSE started_at END,
			ended_at = v.vended, error_code = v.vcode, error_message = v.vmessage, connection = v.vconnection,
			identical = v.videntical, timing = v.vtiming, has_response = v.vresponse, status = v.vstatus, response_state = v.vrstate
		FROM v WHERE event_id = v.vid AND n = v.vn AND (state = 1 OR state = 2 AND v.vstate = 2 AND (response_state = 'upgraded' OR v.vcode = '`+relay.CodeResponseNotStored+`')
				OR `+sweptLive+`)
			AND {claimant} {event_id}
		RETURNING event_id, n, alias_id, kind, from_queue, received_at, bytes`)

// dequeueAttempts removes from the queue attempts that have ended.
var dequeueAttempts = db.NewStatement(`uuid bigint`, `DELETE FROM queue WHERE (event_id, n) IN (%s)`)

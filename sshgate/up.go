package sshgate

import "relay/record"

// jsonView is the session of the bundled client: one JSON object a line. Clients
// ignore types that they don't know.
type jsonView struct {
	s   *session
	out *outputQueue
}

// upMessage is every message but request.
type upMessage struct {
	Type         string `json:"type"`
	Host         string `json:"host,omitempty"`
	BaseURL      string `json:"baseUrl,omitempty"`
	User         string `json:"user,omitempty"`
	Version      string `json:"version,omitempty"`
	Alias        string `json:"alias,omitempty"`
	URL          string `json:"url,omitempty"`
	QueuedEvents *int   `json:"queuedEvents,omitempty"`
	Code         string `json:"code,omitempty"`
	Message      string `json:"message,omitempty"`
	Released     *int   `json:"released,omitempty"`
	Lines        int    `json:"lines,omitempty"`
	RetryAfterMs int    `json:"retryAfterMs,omitempty"`
}

// upRequest is one attempt that has ended.
type upRequest struct {
	Type    string         `json:"type"`
	Event   record.Summary `json:"event"`
	Attempt record.Attempt `json:"attempt"`
}

// retryAfterMs is how long a client waits before it comes back to a relay that
// stops.
const retryAfterMs = 250

func (v *jsonView) output(out *outputQueue) { v.out = out }
func (v *jsonView) patient() bool           { return false }
func (v *jsonView) missed()                 { v.put(upMessage{Type: "resync"}) }

func (v *jsonView) dropped(n int) string {
	line, _ := jsonText(upMessage{Type: "dropped", Lines: n})
	return line
}

func (v *jsonView) put(message any) {
	line, err := jsonText(message)
	if err != nil {
		v.s.c.log.Error("encode session message", "err", err)
		return
	}
	v.out.put(line)
}

func (v *jsonView) begin(online, refused []notice) (int, bool) {
	o := &v.s.c.srv.o
	v.put(upMessage{
		Type: "hello", Host: o.Site.Base.Hostname(), BaseURL: o.Site.URL(""),
		User: v.s.c.who.AccountName, Version: o.Version,
	})
	for _, n := range online {
		v.tell(n)
	}
	for _, n := range refused {
		v.tell(n)
	}
	return 0, true
}

func (v *jsonView) tell(n notice) {
	m := upMessage{Type: string(n.kind), Alias: n.alias, Code: n.code, Message: n.message}
	switch n.kind {
	case noticeOnline:
		m.URL = v.s.c.srv.o.Site.AliasURL(n.alias)
		queued := 0
		if st, ok := v.s.status(n.of); ok {
			queued = st.QueuedEvents
		}
		m.QueuedEvents = &queued
	case noticeStopping:
		m.RetryAfterMs = retryAfterMs
	}
	v.put(m)
}

func (v *jsonView) request(r endedAttempt) {
	v.put(upRequest{Type: "request", Event: r.event, Attempt: r.attempt})
}

func (v *jsonView) released(alias string, n int, err error) {
	if err != nil {
		p := record.ProblemOf(err, "")
		v.put(upMessage{Type: "error", Alias: alias, Code: p.Code, Message: p.Detail})
		return
	}
	v.put(upMessage{Type: "released", Alias: alias, Released: &n})
}

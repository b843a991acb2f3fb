package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"time"

	"relay"
	"relay/wire"
)

// serve answers the requests of a connection, one after another, until it ends or is
// handed over to net/http.
func (c *conn) serve() {
	if c.tls != nil && !c.handshake() {
		return
	}
	if c.secure && c.sni.kind == hostBase {
		c.handOver()
		return
	}
	for c.request() {
		if c.srv.stopping.Load() {
			c.phase.Store(phaseLinger)
			c.linger = true
			break
		}
	}
	if c.linger {
		c.closeOrderly()
	}
}

// request serves one request and reports whether another may follow.
func (c *conn) request() bool {
	h, n, err := c.readHead()
	if errors.Is(err, errCallerGone) {
		if head := c.buf[c.r:c.w]; c.phase.Load() == phaseHead && len(head) > 0 {
			c.access(c.routeBad(head), head, Access{})
		}
		return false
	}
	if err != nil {
		c.refuseBad(relay.AsError(err))
		return false
	}
	to, isHead := c.srv.hosts.find(string(h.Host)), string(h.Method) == "HEAD"
	if status, answered := c.challenge(h); answered {
		c.access(to, h.Raw, Access{Status: status})
		return false
	}
	toBase := to.kind == hostBase && c.sni.kind != hostAlias
	if to.kind == hostUnknown {
		// Health checks may use any host name.
		path, _, _ := bytes.Cut(wire.ShownTarget(h.Target), []byte("?"))
		toBase = isHealth(string(path))
	}
	if toBase {
		// net/http answers the request.
		if _, err := url.ParseRequestURI(string(h.Target)); err != nil {
			// The server refuses the request here, because net/http would refuse it without an error code.
			c.refuse(relay.Errorf(relay.CodeRequestMalformed, "the path is not a valid URL; %% must begin an escape such as %%20"), isHead, "")
			return false
		}
		// This also skips an empty line before the request, which net/http does not accept.
		c.r += n - len(h.Raw)
		c.handOver()
		return false
	}
	a, why := c.alias(to)
	if why == nil && !c.srv.beginRequest() {
		why = errStopping
	}
	if why != nil {
		c.access(to, h.Raw, Access{Status: c.refuse(why, isHead, to.label), Code: why.Code})
		if to.kind == hostInvalid {
			c.reject(c.sni, c.buf[c.r:c.r+n], why)
		}
		return false
	}
	defer c.srv.endRequest()
	return c.capture(a, h, n)
}

// alias looks up the alias of a request, or returns the error with which it is refused.
func (c *conn) alias(to route) (*relay.Alias, *relay.Error) {
	switch {
	case to.kind == hostInvalid:
		return nil, relay.Errorf(relay.CodeRequestMalformed, "the Host line does not hold a host name")
	case c.sni.kind == hostAlias && c.sni != to:
		return nil, errMisdirected
	case to.kind != hostAlias:
		return nil, errHostUnknown
	case c.srv.starting.Load():
		return nil, errStarting
	}
	a, ok := c.srv.opt.Capture.FindAlias(to.label)
	if !ok {
		return nil, relay.Errorf(relay.CodeAliasNotFound, "no alias has this name; check the spelling, or open a tunnel for it to create it")
	}
	return a, nil
}

// capture passes a request to the Capturer, writes the relay-made answer if there is one, and reports
// whether another request may follow. h is invalid afterwards.
func (c *conn) capture(a *relay.Alias, h *wire.Head, n int) bool {
	c.phase.Store(phaseBusy)
	isHead, last := string(h.Method) == "HEAD", h.Close || h.Minor == 0
	in := c.inbound(a, h.Raw)
	in.Caller = c
	c.r += n
	c.fromBuf, c.body, c.served = false, bodyMeter{}, true
	var done Access
	// The call is deferred, so that the access log also has requests whose capture panics.
	defer func() { c.access(route{kind: hostAlias, label: a.Name}, in.Head, done) }()
	out := c.srv.opt.Capture.Capture(c.srv.ctx, in)
	done.Status, done.Event = out.Status, out.Event
	keep := out.KeepAlive && !c.aborted.Load()
	if out.Answer == nil {
		c.srv.met.captured.Inc()
	} else {
		// A relay-made answer has the version HTTP/1.1 and no Connection line that would keep an HTTP/1.0
		// connection open, so such a connection ends.
		keep = keep && out.Answer.Error == nil && !last && !c.srv.stopping.Load()
		done.Status = c.answer(out.Answer, isHead, keep, a.Name)
		keep = keep && done.Status != 0
		if out.Gone != nil && (done.Status == 0 || c.Left()) {
			done.Status = 0
			out.Gone()
		}
		done.Event = out.Answer.Event
		if out.Answer.Error != nil {
			done.Code = out.Answer.Error.Code
		}
	}
	if keep {
		c.phase.Store(phaseIdle)
	} else {
		c.phase.Store(phaseLinger)
		c.linger = true
	}
	return keep
}

// restOfHeadTimeout bounds the wait for the rest of a refused head.
const restOfHeadTimeout = time.Second

// refuseBad answers a head that could not be parsed, and then has the request stored if its Host is a
// known alias. If the Host line has not arrived yet, for example after a target that is too long,
// refuseBad first reads more of the head, within the limit of heads.
func (c *conn) refuseBad(why *relay.Error) {
	head := c.buf[c.r:c.w]
	to := c.routeBad(head)
	status := c.refuse(why, bytes.HasPrefix(bytes.TrimLeft(head, "\r\n"), []byte("HEAD ")), to.label)
	if to.kind == hostUnknown && why.Code != relay.CodeRequestTimeout {
		most := c.srv.limits.Head
		if most <= 0 {
			most = lingerMaxHead
		}
		c.deadline(restOfHeadTimeout)
		for complete := false; !complete && c.w-c.r < most; {
			n, err := c.fill()
			head = c.buf[c.r:c.w]
			line := bytes.IndexByte(head[len(head)-n:], '\n') >= 0
			complete = err != nil || line && (shownHost(head) != nil || len(upToBody(head)) < len(head))
		}
		to = c.routeBad(head)
	}
	c.access(to, head, Access{Status: status, Code: why.Code})
	c.reject(to, head, why)
}

// routeBad routes a refused head by its Host line, or by the TLS server name of the
// connection.
func (c *conn) routeBad(head []byte) route {
	to := route{}
	if host := shownHost(head); host != nil {
		to = c.srv.hosts.find(string(host))
	}
	if to.kind != hostAlias && c.sni.kind == hostAlias {
		return c.sni
	}
	return to
}

// reject has a refused request stored as an event, if its alias is known and the status of the error is none
// of 404, 421 and 503. Call it after the answer was written, so that a slow store cannot delay the answer.
func (c *conn) reject(to route, head []byte, why *relay.Error) {
	switch relay.Status(why.Code) {
	case 404, 421, 503:
		return
	}
	if to.kind != hostAlias || c.srv.starting.Load() {
		return
	}
	a, ok := c.srv.opt.Capture.Alias(to.label)
	if !ok {
		return
	}
	c.srv.met.rejected.count(why.Code)
	c.srv.opt.Capture.Reject(c.inbound(a, upToBody(head)), why)
}

// inbound returns a request of this connection, with a copy of its head.
func (c *conn) inbound(a *relay.Alias, head []byte) *relay.Inbound {
	return &relay.Inbound{Alias: a, From: c.from, TLS: c.secure || c.srv.opt.TLSInFront, Arrived: c.arrived, Head: bytes.Clone(head)}
}

// refuse answers with the error why, and makes this the last request of the connection. It returns the status
// that the caller got, 0 = none.
func (c *conn) refuse(why *relay.Error, isHead bool, label string) (status int) {
	c.phase.Store(phaseLinger)
	status = c.answer(&relay.Answer{Error: why}, isHead, false, label)
	c.linger = status != 0
	return status
}

// answer writes a relay-made answer to a request; label is the label of its host, "" = none. It returns
// the status that the caller got, 0 if the caller did not receive the answer.
func (c *conn) answer(a *relay.Answer, isHead, keep bool, label string) (status int) {
	if c.aborted.Load() {
		return 0
	}
	id, code := "", codeQueued
	switch {
	case a.Error != nil:
		id, code = requestID(), a.Error.Code
	case a.Handshake != "":
		code = codeAnswered
	}
	c.srv.met.made.count(code)
	c.logAnswer(a, code, id, label)
	gone := c.Presence() == relay.CallerReset
	if _, err := c.Write(encodeAnswer(a, id, isHead, keep)); err != nil || gone {
		return 0
	}
	return answerStatus(a)
}

// logAnswer logs a relay-made answer. Answers for which the relay or the tunnel is at fault (5xx) are
// logged at level info, at most logPerSecond times a second, all others at level debug.
func (c *conn) logAnswer(a *relay.Answer, code, id, label string) {
	level, suppressed, ok := slog.LevelDebug, int64(0), true
	if a.Error != nil && relay.Status(code) >= 500 {
		level = slog.LevelInfo
	}
	log := c.srv.log
	if !log.Enabled(c.srv.ctx, level) {
		return
	}
	if level == slog.LevelInfo {
		suppressed, ok = c.srv.answerLog.allow()
	}
	if suppressed > 0 {
		log = log.With("suppressed", suppressed)
	}
	if label != "" {
		log = log.With("alias", label)
		if owner, known := c.srv.opt.Capture.Alias(label); known && ok {
			log = log.With("account", owner.OwnerName)
		}
	}
	if !a.Event.IsZero() {
		log = log.With("event", a.Event)
	}
	if a.Handshake != "" {
		log = log.With("handshake", a.Handshake)
	}
	if ok {
		log.Log(c.srv.ctx, level, "answered", "code", code, "request", id, "from", c.from)
	}
}

// shownHost returns the Host value in a refused head; nil without a complete Host line.
func shownHost(head []byte) []byte {
	for line := range bytes.Lines(upToBody(head)) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if ok && line[len(line)-1] == '\n' && bytes.EqualFold(bytes.TrimSpace(name), []byte("Host")) {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

// upToBody returns p up to its first empty line, which may end with CRLF or LF.
func upToBody(p []byte) []byte {
	if end := wire.HeadEnd(p, 0); end >= 0 {
		return p[:end]
	}
	return p
}

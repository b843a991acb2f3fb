package server

import (
	"bytes"
	"errors"
	"log/slog"
	"net/url"
	"slices"
	"time"

	"relay"
	"relay/wire"
)

// serve answers the requests of a connection one after another until it ends or is
// handed over.
func (c *conn) serve() {
	if c.secure && c.sni.place == toBase {
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

// request serves one request and tells whether another may follow.
func (c *conn) request() bool {
	h, n, err := c.readHead()
	if errors.Is(err, errGone) || errors.Is(err, errIdle) {
		return false
	}
	if err != nil {
		c.refuseBad(relay.AsError(err))
		return false
	}
	if c.challenge(h) {
		return false
	}
	to := c.route(h.Host)
	if c.forBase(h, to) {
		if _, err := url.ParseRequestURI(string(h.Target)); err != nil { // net/http would say so without a code
			c.refuse(relay.Errorf(relay.CodeRequestMalformed, "the request target does not read as a URL; a %% begins an escape such as %%20"),
				bytes.Equal(h.Method, []byte("HEAD")))
			return false
		}
		c.r += n - len(h.Raw) // net/http takes no empty line before a request
		c.handOver()
		return false
	}
	a, why := c.alias(to)
	if why == nil && !c.srv.begin() {
		why = errStopping()
	}
	if why != nil {
		if to.place == noHost {
			c.reject(c.sni, c.buf[c.r:c.r+n], why)
		}
		c.refuse(why, bytes.Equal(h.Method, []byte("HEAD")))
		return false
	}
	defer c.srv.end()
	return c.capture(a, h, n)
}

// rememberedHost is the longest host that a connection keeps in mind while it is
// idle; names are not longer (RFC 1035, section 2.3.4), and some have a port.
const rememberedHost = 255 + len(":65535")

// route finds where a host leads.
func (c *conn) route(host []byte) route {
	if c.host != "" && string(host) == c.host {
		return c.to
	}
	name := string(host)
	to := c.srv.hosts.find(name)
	if len(name) <= rememberedHost {
		c.host, c.to = name, to
	}
	return to
}

// forBase tells whether net/http is to answer: the base site, and health checks at
// hosts that are not ours.
func (c *conn) forBase(h *wire.Head, to route) bool {
	switch to.place {
	case toBase:
		return c.sni.place != toAlias
	case elsewhere:
		path, _, _ := bytes.Cut(wire.ShownTarget(h.Target), []byte("?"))
		return isHealth(string(path))
	}
	return false
}

// alias looks up where a request goes that net/http does not answer.
func (c *conn) alias(to route) (*relay.Alias, *relay.Error) {
	switch {
	case to.place == noHost:
		return nil, relay.Errorf(relay.CodeRequestMalformed, "the Host line does not hold a host name")
	case c.sni.place == toAlias && c.sni != to:
		return nil, errMisdirected()
	case to.place != toAlias:
		return nil, errHostUnknown()
	}
	a, ok := c.srv.opt.Capture.Alias(to.label)
	if !ok {
		return nil, relay.Errorf(relay.CodeAliasNotFound, "there is no alias of this name; check the spelling, or forward it once to claim it")
	}
	return a, nil
}

// capture runs one request to its end and tells whether another may follow. The
// head is invalid afterwards.
func (c *conn) capture(a *relay.Alias, h *wire.Head, n int) bool {
	c.phase.Store(phaseBusy)
	isHead, last := bytes.Equal(h.Method, []byte("HEAD")), h.Close || h.Minor == 0
	in := &relay.Inbound{
		Alias:   a,
		From:    c.from,
		TLS:     c.secure,
		Arrived: c.arrived,
		Head:    bytes.Clone(h.Raw),
		Caller:  c,
	}
	c.r += n
	c.fromBuf = false
	out := c.srv.opt.Capture.Capture(c.srv.ctx, in)
	keep := out.KeepAlive && !c.aborted.Load()
	if out.Answer == nil {
		c.srv.met.captured.Inc()
	} else {
		// Answers of our own are HTTP/1.1 and do not speak the keep-alive of HTTP/1.0.
		keep = keep && out.Answer.Error == nil && !last && !c.srv.stopping.Load()
		keep = c.answer(out.Answer, isHead, keep) && keep
	}
	if keep {
		c.phase.Store(phaseIdle)
	} else {
		c.phase.Store(phaseLinger)
		c.linger = true
	}
	return keep
}

// refuseBad answers a head that could not be read, and has it kept where its Host
// names a known alias. A Host that has not come yet, as behind a target that is too
// long, is waited for after the answer.
func (c *conn) refuseBad(why *relay.Error) {
	head := c.buf[c.r:c.w]
	to := c.routeBad(head)
	c.reject(to, head, why)
	c.refuse(why, bytes.HasPrefix(bytes.TrimLeft(head, "\r\n"), []byte("HEAD ")))
	if to.place == elsewhere && why.Code != relay.CodeRequestTimeout {
		head = c.restOfHead()
		c.reject(c.routeBad(head), head, why)
	}
}

// routeBad guesses where a refused head was to go: by its Host, or by the server
// name of its connection.
func (c *conn) routeBad(head []byte) route {
	to := route{}
	if host := shownHost(head); host != nil {
		to = c.srv.hosts.find(string(host))
	}
	if to.place != toAlias && c.sni.place == toAlias {
		return c.sni
	}
	return to
}

// reject has a refused request kept as an event. Its bytes are trusted for nothing
// but display.
func (c *conn) reject(to route, head []byte, why *relay.Error) {
	switch relay.Status(why.Code) {
	case 404, 421, 503:
		return
	}
	if to.place != toAlias {
		return
	}
	a, ok := c.srv.opt.Capture.Alias(to.label)
	if !ok {
		return
	}
	c.srv.met.rejected.count(why.Code)
	c.srv.opt.Capture.Reject(&relay.Inbound{
		Alias:   a,
		From:    c.from,
		TLS:     c.secure,
		Arrived: c.arrived,
		Head:    bytes.Clone(upToBody(head)),
	}, why)
}

// headPause is how long the rest of a refused head is waited for.
const headPause = time.Second

// restOfHead reads what belongs to a refused head, for a short time and within the
// limit of heads.
func (c *conn) restOfHead() []byte {
	most := c.srv.limits.Head
	if most <= 0 {
		most = lingerHead
	}
	c.deadline(headPause)
	for c.w-c.r < most {
		c.room()
		n, err := c.net.Read(c.buf[c.w:])
		line := bytes.IndexByte(c.buf[c.w:c.w+n], '\n') >= 0
		c.w += n
		if head := c.buf[c.r:c.w]; err != nil || line && (shownHost(head) != nil || len(upToBody(head)) < len(head)) {
			break
		}
	}
	return c.buf[c.r:c.w]
}

// refuse answers and ends the connection.
func (c *conn) refuse(why *relay.Error, isHead bool) {
	c.phase.Store(phaseLinger)
	c.linger = c.answer(&relay.Answer{Error: why}, isHead, false)
}

// answer writes an answer of our own; false when the caller did not take it.
func (c *conn) answer(a *relay.Answer, isHead, keep bool) bool {
	if c.aborted.Load() {
		return false
	}
	id, code := "", codeQueued
	if a.Error != nil {
		id, code = requestID(), a.Error.Code
	}
	c.srv.met.made.count(code)
	c.logAnswer(a, code, id)
	_, err := c.Write(appendAnswer(nil, a, id, isHead, keep))
	return err == nil
}

// logAnswer writes one line for an answer of our own: what is our fault or the
// tunnel's is worth a line at the usual level, as long as these are not too many;
// what strangers send is not.
func (c *conn) logAnswer(a *relay.Answer, code, id string) {
	level := slog.LevelDebug
	if a.Error != nil && relay.Status(code) >= 500 {
		level = slog.LevelInfo
	}
	if !c.srv.log.Enabled(c.srv.ctx, level) {
		return
	}
	log := c.srv.log
	if level == slog.LevelInfo {
		more, ok := c.srv.told.may(time.Now())
		if !ok {
			return
		}
		if more > 0 {
			log = log.With("more not told", more)
		}
	}
	if !a.Event.IsZero() {
		log = log.With("event", a.Event)
	}
	log.Log(c.srv.ctx, level, "answered", "code", code, "request", id, "from", c.from)
}

// shownHost finds a Host value in bytes that were refused as a request head; nil
// when there is no whole line of it.
func shownHost(head []byte) []byte {
	for line := range bytes.Lines(upToBody(head)) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if ok && line[len(line)-1] == '\n' && bytes.EqualFold(bytes.TrimSpace(name), []byte("Host")) {
			return bytes.TrimSpace(value)
		}
	}
	return nil
}

// upToBody cuts bytes behind the first empty line, however it ends.
func upToBody(p []byte) []byte {
	ends := []int{len(p)}
	for _, sep := range []string{"\n\r\n", "\n\n"} {
		if i := bytes.Index(p, []byte(sep)); i >= 0 {
			ends = append(ends, i+len(sep))
		}
	}
	return p[:slices.Min(ends)]
}

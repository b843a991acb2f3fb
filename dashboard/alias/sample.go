package alias

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/a-h/templ"
	"rsc.io/qr"

	"relay"
	"relay/dashboard/page"
)

// sampleBody is the body of a test event.
const sampleBody = `{"type":"relay.test","message":"Hello from Relay","sentBy":%q}`

// sendSample sends a test event to an alias as a caller would, but through package delivery, because
// the server may be unable to reach its own public address.
func (p Pages) sendSample(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	if err := p.Limits.Replay(who); err != nil {
		return nil, err
	}
	body := fmt.Sprintf(sampleBody, who.AccountName)
	site, _ := strings.CutPrefix(p.Site.AliasURL(a.Name), p.Site.Base.Scheme+"://")
	head := "POST /relay-test HTTP/1.1\r\nHost: " + site + "\r\nUser-Agent: Relay-Test\r\nContent-Type: application/json\r\nContent-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n"
	from, _ := netip.ParseAddrPort(r.RemoteAddr)
	gone, leave := context.WithCancel(context.Background())
	defer leave()
	caller := &sampleCaller{rest: []byte(body), gone: gone, leave: leave}
	out := p.Deliver.Capture(r.Context(), &relay.Inbound{
		Alias: a, From: from, TLS: p.Secure(), Arrived: time.Now(), Head: []byte(head), Caller: caller,
	})
	if out.Answer != nil && out.Answer.Error != nil && out.Answer.Event.IsZero() {
		return nil, out.Answer.Error
	}
	return page.Acted(w, r, nil, "A test event was sent.", "", page.AliasPath(a.Name))
}

// sampleCaller is the caller of a test event: its body is complete, and the response is discarded.
type sampleCaller struct {
	rest  []byte
	gone  context.Context
	leave context.CancelFunc
}

func (c *sampleCaller) Buffered() int { return len(c.rest) }

func (c *sampleCaller) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		<-c.gone.Done()
		return 0, io.ErrClosedPipe
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *sampleCaller) Unread(p []byte) { c.rest = slices.Concat(p, c.rest) }

func (c *sampleCaller) Write(p []byte) (int, error) { return len(p), nil }

func (c *sampleCaller) DisableWriteTimeout() {}

func (c *sampleCaller) ResetOnCrash() {}

func (c *sampleCaller) Presence() relay.Presence { return relay.CallerPresent }

func (c *sampleCaller) Left() bool { return false }

func (c *sampleCaller) CloseWrite() error { return nil }

func (c *sampleCaller) Abort() { c.leave() }

// qrCode sends the address of an alias as a QR code.
func (p Pages) qrCode(w http.ResponseWriter, r *http.Request, who relay.Actor, a *relay.Alias) (templ.Component, error) {
	code, err := qr.Encode(p.Site.AliasURL(a.Name), qr.M)
	if err != nil {
		return nil, err
	}
	// ISO/IEC 18004 requires a border of four modules.
	const border = 4
	side := strconv.Itoa(code.Size + 2*border)
	var path strings.Builder
	for y := range code.Size {
		for x := range code.Size {
			if code.Black(x, y) {
				fmt.Fprintf(&path, "M%d %dh1v1h-1z", x+border, y+border)
			}
		}
	}
	w.Header().Set("Content-Type", "image/svg+xml")
	_, err = io.WriteString(w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 `+side+" "+side+`" shape-rendering="crispEdges"><path fill="#fff" d="M0 0h`+side+`v`+side+`H0z"/><path d="`+path.String()+`"/></svg>`)
	return nil, err
}

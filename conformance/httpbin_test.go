package conformance

import (
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
)

// httpbinRequests returns a request to every endpoint of go-httpbin with a fixed input; random
// endpoints get a seed if they accept one.
func httpbinRequests() []string {
	var all []string
	for _, path := range strings.Fields(`
		/ /get /get?a=1&a=2&b=%2F /anything /anything/x/y?z=1 /ip /user-agent /headers /hostname /env
		/base64/aGVsbG8= /base64/decode/aGVsbG8= /base64/encode/hello /bearer /brotli /bytes/1024?seed=7
		/cache /cache/60 /cookies /cookies/set?k=v /cookies/delete?k= /deflate /delay/0.2 /delete
		/deny /drip?duration=0.3s&numbytes=5 /dump/request /encoding/utf8 /etag/abc /forms/post /gzip
		/hidden-basic-auth/u/p /html /image /image/png /image/jpeg /image/svg /image/webp /json
		/links/5/0 /problem /range/1024 /redirect-to?url=%2Fget /redirect/3 /relative-redirect/3
		/absolute-redirect/2 /response-headers?X-A=1&X-A=2 /robots.txt /sse?count=3&duration=100ms
		/status/200 /status/204 /status/304 /status/404 /status/418 /status/500 /status/503
		/stream-bytes/2048?seed=3 /stream/5 /trailers?X-T=1 /uuid /unstable?seed=1&failure_rate=0 /websocket/echo
		/xml /basic-auth/u/p /digest-auth/auth/u/p /nonexistent`) {
		all = append(all, "GET "+path+" HTTP/1.1\r\nHost: bin.localhost\r\nUser-Agent: conformance\r\nConnection: close\r\n\r\n")
	}
	const body = `{"a": [1, 2.50, "caf\u00e9"], "b": null}`
	for _, m := range []string{"POST /post", "PUT /put", "PATCH /patch", "DELETE /delete", "POST /anything", "POST /dump/request"} {
		all = append(all,
			fmt.Sprintf("%s HTTP/1.1\r\nHost: bin.localhost\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", m, len(body), body),
			fmt.Sprintf("%s HTTP/1.1\r\nHost: bin.localhost\r\nContent-Type: application/json\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", m, len(body), body))
	}
	return append(all,
		"HEAD /head HTTP/1.1\r\nHost: bin.localhost\r\nConnection: close\r\n\r\n",
		"OPTIONS /get HTTP/1.1\r\nHost: bin.localhost\r\nConnection: close\r\n\r\n",
		"GET /basic-auth/u/p HTTP/1.1\r\nHost: bin.localhost\r\nAuthorization: Basic dTpw\r\nConnection: close\r\n\r\n",
		"GET /range/64 HTTP/1.1\r\nHost: bin.localhost\r\nRange: bytes=5-9\r\nConnection: close\r\n\r\n",
		"GET /etag/abc HTTP/1.1\r\nHost: bin.localhost\r\nIf-None-Match: \"abc\"\r\nConnection: close\r\n\r\n",
		"GET /gzip HTTP/1.1\r\nHost: bin.localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n",
		"POST /post HTTP/1.1\r\nHost: bin.localhost\r\nContent-Type: application/x-www-form-urlencoded\r\nConnection: close\r\nContent-Length: 15\r\n\r\na=1&b=2&b=%20+3")
}

// clock lists the parts of an answer that depend on time or randomness, with the text that replaces each:
// dates, durations, random ids and nonces.
var clock = []struct {
	find *regexp.Regexp
	put  string
}{
	{regexp.MustCompile(`(?m)^Date: .*\r$`), "Date: D\r"},
	{regexp.MustCompile(`Expires=[^;\r]*`), "Expires=D"},
	{regexp.MustCompile(`(?m)^Last-Modified: .*\r$`), "Last-Modified: D\r"},
	{regexp.MustCompile(`(?m)^Etag: [0-9a-f]{98}\r$`), "Etag: E\r"}, // the Etag of /cache begins with the time in hex
	{regexp.MustCompile(`(?m)^Server-Timing: .*\r$`), "Server-Timing: T\r"},
	{regexp.MustCompile(`"timestamp":\s*\d+`), `"timestamp":0`},
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`(nonce|opaque)=[0-9a-f]+`), `$1=N`},
}

func steady(answer []byte) string {
	s := string(answer)
	for _, c := range clock {
		s = c.find.ReplaceAllString(s, c.put)
	}
	return s
}

// TestHTTPBinThroughTheTunnel calls every endpoint of a real local server directly, through the tunnel, and
// by replay. The answers are equal, except for times and random values.
func TestHTTPBinThroughTheTunnel(t *testing.T) {
	t.Parallel()
	r := startRelay(t, "")
	local := httptest.NewServer(httpbin.New())
	t.Cleanup(local.Close)
	addr := local.Listener.Addr().String()
	r.tunnel("bin", addr)

	ask := func(addr, request string) []byte {
		t.Helper()
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(60 * time.Second))
		_, _ = io.WriteString(conn, request)
		answer, err := io.ReadAll(conn)
		if err != nil {
			t.Errorf("%.60q: %v", request, err)
		}
		return answer
	}
	requests, differences := httpbinRequests(), 0
	for _, request := range requests {
		line, _, _ := strings.Cut(request, "\r\n")
		direct := steady(ask(addr, request))
		tunnelled := steady(ask(r.http, request))
		id := r.latest("bin").ID
		r.replay(id)
		replayed := steady(r.must(200, "GET", "/events/"+id+"/attempts/2/response.raw", nil))
		if tunnelled != direct {
			differences++
			t.Errorf("%s: through the tunnel\n%.500q\ndirectly\n%.500q", line, tunnelled, direct)
		}
		if replayed != direct {
			differences++
			t.Errorf("%s: by replay\n%.500q\ndirectly\n%.500q", line, replayed, direct)
		}
	}
	t.Logf("%d requests, %d differences but those of the clock", len(requests), differences)
}

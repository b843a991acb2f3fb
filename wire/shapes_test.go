package wire_test

import (
	"strings"
)

// shape is a request that must be accepted and forwarded byte for byte.
type shape struct{ name, wire string }

// post returns a POST request with a Content-Length.
func post(lines, body string) string {
	return "POST /hook HTTP/1.1\r\nHost: a.localhost\r\n" + lines + "Content-Length: " + itoa(len(body)) + "\r\n\r\n" + body
}

func get(target string) string {
	return "GET " + target + " HTTP/1.1\r\nHost: a.localhost\r\n\r\n"
}

func chunked(body string) string {
	return "POST /c HTTP/1.1\r\nHost: a.localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + body
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func goodRequests() []shape {
	shapes := providerShapes()
	shapes = append(shapes, framingShapes()...)
	shapes = append(shapes, headerShapes()...)
	return append(shapes, targetShapes()...)
}

func providerShapes() []shape {
	return []shape{
		{"stripe", post("User-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nStripe-Signature: t=1,v1=ab\r\nContent-Type: application/json; charset=utf-8\r\n", "{\n  \"id\": \"evt_1\"\n}")},
		{"github", post("X-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=ab\r\ncontent-type: application/json\r\n", `{"ref":"x"}`)},
		{"slack form", post("Content-Type: application/x-www-form-urlencoded\r\nX-Slack-Signature: v0=ab\r\n", "token=a&text=%2Fx+y")},
		{"shopify", post("X-Shopify-Hmac-Sha256: a+/=\r\nX-Shopify-Topic: orders/create\r\n", "{}")},
		{"twilio form", post("I-Twilio-Idempotency-Token: 1\r\nX-Twilio-Signature: x=\r\n", "Body=caf%C3%A9")},
		{"sns text/plain", post("x-amz-sns-message-type: Notification\r\nContent-Type: text/plain; charset=UTF-8\r\n", "{\"Type\" : 1}\n")},
		{"svix lower case", "POST /s HTTP/1.1\r\nhost: a.localhost\r\nsvix-id: msg_1\r\nsvix-timestamp: 1\r\ncontent-length: 2\r\n\r\n{}"},
		{"standard webhooks", post("webhook-id: m\r\nwebhook-signature: v1,ab v1,cd\r\n", "[]")},
		{"sendgrid multipart", post("Content-Type: multipart/form-data; boundary=xYz\r\n", "--xYz\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nb\r\n--xYz--\r\n")},
		{"sendgrid events", post("X-Twilio-Email-Event-Webhook-Signature: MEU\r\n", "[{\"a\":1},\r\n{}]\r\n")},
	}
}

func framingShapes() []shape {
	return []shape{
		{"empty body", post("", "")},
		{"no length", "POST / HTTP/1.1\r\nHost: a.localhost\r\n\r\n"},
		{"binary", post("", allBytes())},
		{"gzip", post("Content-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00")},
		{"utf-16 bom", post("", "\xff\xfe{\x00}\x00")},
		{"looks like a request", post("", "GET / HTTP/1.1\r\nHost: b\r\n\r\n")},
		{"leading zero length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 002\r\n\r\nab"},
		{"large", post("", strings.Repeat("0123456789abcdef", 20<<10))},
		{"chunked", chunked("5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n")},
		{"chunked empty", chunked("0\r\n\r\n")},
		{"chunked capitals", strings.Replace(chunked("A\r\n0123456789\r\n0\r\n\r\n"), "chunked", "Chunked", 1)},
		{"chunked leading zeros", chunked("006\r\nabcdef\r\n0000\r\n\r\n")},
		{"chunked extensions", chunked("3;a=b;c=\"d;e\"\r\nabc\r\n1 ; x\r\nz\r\n0;last\r\n\r\n")},
		{"chunked padded coding", strings.Replace(chunked("1\r\na\r\n0\r\n\r\n"), ": chunked", ":  chunked \t", 1)},
		{"trailers declared", strings.Replace(chunked("1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n"), "Transfer", "Trailer: X-Sum\r\nTransfer", 1)},
		{"trailers undeclared", chunked("1\r\na\r\n0\r\nX-Sum: 1\r\nx-sum:\t2 \r\nEmpty:\r\n\r\n")},
		{"chunk data of line ends", chunked("4\r\n\r\n\r\n\r\n0\r\n\r\n")},
		{"expect", post("Expect: 100-continue\r\n", "ab")},
		{"expect other", post("Expect: something\r\n", "ab")},
		{"get with body", strings.Replace(post("", "q"), "POST", "GET", 1)},
		{"delete with body", strings.Replace(post("", "q"), "POST", "DELETE", 1)},
		{"http/1.0", "POST /x HTTP/1.0\r\nHost: a.localhost\r\nContent-Length: 1\r\n\r\na"},
		{"http/1.0 without host", "GET /x HTTP/1.0\r\n\r\n"},
		{"http/1.0 keep-alive", "GET /x HTTP/1.0\r\nHost: a\r\nConnection: Keep-Alive\r\n\r\n"},
		{"upgrade", "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n"},
	}
}

func headerShapes() []shape {
	return []shape{
		{"duplicates", post("X-Dup: 1\r\nOther: 2\r\nx-dup: 3\r\nX-DUP: 4\r\n", "a")},
		{"reverse order", "GET / HTTP/1.1\r\nZ: 1\r\nY: 2\r\nHost: a\r\nA: 3\r\n\r\n"},
		{"obs-text", post("X-Name: caf\xe9 \xff\x80\r\n", "a")},
		{"weird case", post("x-wEiRd-CaSe: 1\r\nCONTENT-TYPE: text/plain\r\n", "a")},
		{"empty values", post("X-Empty:\r\nX-Spaces:   \r\nUser-Agent: \r\n", "a")},
		{"padding", post("X-A:no space\r\nX-B: \t  padded \t \r\n", "a")},
		{"odd tokens", post("!#$%&'*+-.^_`|~09: 1\r\n_under_score: 2\r\n", "a")},
		{"colons in values", post("X-A: a:b: c\r\nX-B: ::\r\n", "a")},
		{"45 KB line", post("X-Long: "+strings.Repeat("v", 45<<10)+"\r\n", "a")},
		{"150 lines", post(strings.Repeat("X-Many: value\r\n", 150), "a")},
		{"hop-by-hop", post("Connection: keep-alive, X-Sig\r\nKeep-Alive: timeout=5, max=2\r\nTE: trailers\r\nProxy-Connection: x\r\nX-Sig: 1\r\n", "a")},
		{"close", post("Connection: close\r\n", "a")},
		{"forwarded", post("X-Forwarded-For: 1.2.3.4\r\nVia: 1.1 x\r\nForwarded: for=1\r\n", "a")},
		{"host with port", "GET / HTTP/1.1\r\nHost: a.localhost:8080\r\n\r\n"},
		{"host with capitals", "GET / HTTP/1.1\r\nHost: A.LocalHost\r\n\r\n"},
		{"host with dot", "GET / HTTP/1.1\r\nHost: a.localhost.\r\n\r\n"},
		{"host with empty port", "GET / HTTP/1.1\r\nHost: a.localhost:\r\n\r\n"},
		{"host ipv6", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n"},
		{"host without space", "GET / HTTP/1.1\r\nHost:a\r\n\r\n"},
		{"leading empty line", "\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"head", "HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"report", "REPORT / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"small letters", "post / HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"ntlm", "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: NTLM TlR=\r\n\r\n"},
		{"proxy-connection", "GET / HTTP/1.1\r\nHost: a\r\nProxy-Connection: close\r\n\r\n"},
	}
}

func targetShapes() []shape {
	shapes := []shape{
		{"options *", "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"options path", "OPTIONS /x HTTP/1.1\r\nHost: a\r\n\r\n"},
		{"absolute", "GET http://A.localhost/x?y HTTP/1.1\r\nHost: a.localhost\r\n\r\n"},
		{"absolute https", "GET HTTPS://a.localhost:443/x HTTP/1.1\r\nHost: a.localhost:443\r\n\r\n"},
		{"absolute without path", "GET http://a.localhost HTTP/1.1\r\nHost: a.localhost\r\n\r\n"},
		{"absolute without host line", "GET http://a.localhost/ HTTP/1.0\r\n\r\n"},
	}
	for _, t := range []string{
		"/", "/a%2Fb%2fc", "//double//slash///", "/a/./b/../c", "/%41%7e~", "/?", "/?b=2&a=1&b=1", "/?a=1;b=2", "/?x=%zz",
		"/caf\xc3\xa9", "/caf\xe9?\xff", "/|{}^\"<>`\\", "/a#frag", "/a+b", "/" + strings.Repeat("x", 16000), "/http://b/", "/*", "/;:@!$&'(),=",
	} {
		shapes = append(shapes, shape{"target " + t[:min(len(t), 20)], get(t)})
	}
	return shapes
}

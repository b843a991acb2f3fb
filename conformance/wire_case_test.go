package conformance

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// wireCase is a request and its response, whose bytes are compared: at the local server, at the caller, in
// the store, and in a replay.
type wireCase struct {
	name     string
	request  string
	response string
	shut     bool // the local server closes the connection after its response
}

const (
	host = "Host: wire.localhost\r\n"
	ok   = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
)

func post(head, body string) string {
	return "POST /hook HTTP/1.1\r\n" + host + head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
}

func get(target string) string {
	return "GET " + target + " HTTP/1.1\r\n" + host + "\r\n"
}

func random(n int, seed uint64) string {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return string(b)
}

func allBytes() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

// plainCases are the cases in which the caller writes the request at once and gets one answer. The numbers in
// the names count all wire cases, also those in other files.
func plainCases() []wireCase {
	json := `{"id":"evt_1","type":"invoice.paid","amount":1.10,"name":"caf\u00e9 ` + "\xc3\xa9" + `"}`
	var cases []wireCase
	add := func(name, request, response string) {
		cases = append(cases, wireCase{name: name, request: request, response: response})
	}
	closing := func(name, request, response string) {
		cases = append(cases, wireCase{name: name, request: request, response: response, shut: true})
	}
	add("1 stripe", post("User-Agent: Stripe/1.0 (+https://stripe.com/docs/webhooks)\r\nAccept: */*; q=0.5, application/xml\r\nContent-Type: application/json; charset=utf-8\r\nStripe-Signature: t=1492774577,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd,v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39\r\n", json), ok)
	add("2 github json", post("Accept: */*\r\nUser-Agent: GitHub-Hookshot/044aadd\r\nX-GitHub-Delivery: 72d3162e-cc78-11e3-81ab-4c9367dc0958\r\nX-GitHub-Event: push\r\nX-Hub-Signature-256: sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17\r\ncontent-type: application/json\r\n", json), ok)
	add("3 slack form", post("User-Agent: Slackbot 1.0 (+https://api.slack.com/robots)\r\nAccept-Encoding: gzip,deflate\r\nX-Slack-Signature: v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503\r\nX-Slack-Request-Timestamp: 1531420618\r\nContent-Type: application/x-www-form-urlencoded\r\n", "token=xyzz&text=hello+world%21&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2F1"), ok)
	add("4 shopify", post("X-Shopify-Topic: orders/create\r\nX-Shopify-Hmac-Sha256: XWmrwMey6OsLMeiZKwP4FppHH3cmAiiJJAweH5Jo4bM=\r\nX-Shopify-Shop-Domain: a.myshopify.com\r\nContent-Type: application/json\r\n", json), ok)
	add("5 twilio form", post("Content-Type: application/x-www-form-urlencoded; charset=UTF-8\r\nX-Twilio-Signature: 0/KCTR6DLpKmkAf8muzZqo1nDgQ=\r\nI-Twilio-Idempotency-Token: 1\r\n", "CallSid=CA1&From=%2B14158675309&To=%2B18005551212"), ok)
	add("6 sns", post("x-amz-sns-message-type: Notification\r\nx-amz-sns-message-id: 22b80b92\r\nContent-Type: text/plain; charset=UTF-8\r\nUser-Agent: Amazon Simple Notification Service Agent\r\n", "{\n  \"Type\" : \"Notification\"\n}"), ok)
	add("7 svix", post("svix-id: msg_p5jXN8AQM9LWM0D4loKWxJek\r\nsvix-timestamp: 1614265330\r\nsvix-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=\r\ncontent-type: application/json\r\n", json), ok)
	add("8 standard webhooks", post("webhook-id: msg_1\r\nwebhook-timestamp: 1614265330\r\nwebhook-signature: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= v1,bm9ldHUjKzFob2VudXRob2VodWUzMjRvdWVvdW9ldQo=\r\n", json), ok)
	add("9 sendgrid multipart", post("Content-Type: multipart/form-data; boundary=xYzZY\r\nUser-Agent: Sendlib/1.0\r\n", "--xYzZY\r\nContent-Disposition: form-data; name=\"email\"\r\n\r\nFrom: a\r\n\r\nbody\r\n--xYzZY--\r\n"), ok)
	add("10 github form", post("X-GitHub-Event: issues\r\nContent-Type: application/x-www-form-urlencoded\r\n", "payload=%7B%22a%22%3A1%7D"), ok)
	add("11 length zero", post("", ""), ok)
	add("12 no length", "POST /hook HTTP/1.1\r\n"+host+"\r\n", ok)
	add("13 binary", post("Content-Type: application/octet-stream\r\n", allBytes()), "HTTP/1.1 200 OK\r\nContent-Length: 256\r\n\r\n"+allBytes())
	add("14 gzip", post("Content-Encoding: gzip\r\n", "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xcaH\xcd\xc9\xc9\x07\x04\x00\x00\xff\xff\x86\xa6\x106\x05\x00\x00\x00"), "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 29\r\n\r\n\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff\xcaH\xcd\xc9\xc9\x07\x04\x00\x00\xff\xff\x86\xa6\x106\x05\x00\x00\x00")
	add("15 ten megabytes", post("", random(10<<20, 15)), "HTTP/1.1 200 OK\r\nContent-Length: 10485760\r\n\r\n"+random(10<<20, 16))
	chunked := "POST /hook HTTP/1.1\r\n" + host + "Transfer-Encoding: chunked\r\n"
	add("16 chunked", chunked+"\r\n5\r\nhello\r\n006;name=\"v;x\"\r\n world\r\nA\r\n0123456789\r\n0\r\n\r\n", ok)
	add("17 chunked empty", chunked+"\r\n0\r\n\r\n", ok)
	add("18 trailers", chunked+"Trailer: X-Checksum\r\n\r\n3\r\nabc\r\n000;last\r\nX-Checksum: 1\r\nx-undeclared:  two \r\n\r\n", ok)
	add("19 duplicates", post("X-Dup: 1\r\nx-dup: 2\r\nOther: o\r\nX-DUP: 3\r\n", "x"), ok)
	add("20 reverse order", post("Z: 1\r\nY: 2\r\nX: 3\r\nB: 4\r\nA: 5\r\n", "x"), ok)
	add("21 lower case", "POST /hook HTTP/1.1\r\nhost: wire.localhost\r\ncontent-type: text/plain\r\ncontent-length: 1\r\n\r\nx", ok)
	add("22 no user agent", get("/no-agent"), ok)
	add("23 no accept", "GET / HTTP/1.1\r\n"+host+"User-Agent: only\r\n\r\n", ok)
	add("24 own accept-encoding", "GET / HTTP/1.1\r\n"+host+"Accept-Encoding: br;q=0.1, identity\r\n\r\n", ok)
	for _, c := range [][2]string{
		{"25 encoded slashes", "/a%2Fb%2fc"},
		{"26 double slashes", "//double//slash///"},
		{"27 dots", "/a/./b/../c"},
		{"28 needless escapes", "/%41%7e~"},
		{"29 bare question mark", "/?"},
		{"30 query order", "/?b=2&a=1&b=1"},
		{"31 semicolon", "/?a=1;b=2"},
		{"32 bad escape", "/?x=%zz"},
	} {
		add(c[0], get(c[1]), ok)
	}
	add("33 host with port", "GET / HTTP/1.1\r\nHost: wire.localhost:8080\r\n\r\n", ok)
	add("34 host with capitals", "GET / HTTP/1.1\r\nHost: WIRE.LocalHost\r\n\r\n", ok)
	add("37 sender's own proxy headers", post("X-Forwarded-For: 1.2.3.4\r\nVia: 1.0 fred\r\nForwarded: for=192.0.2.60\r\nX-Forwarded-Proto: gopher\r\n", "x"), ok)
	closing("38 connection close", post("Connection: close\r\n", "x"), "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
	add("39 keep-alive", post("Connection: keep-alive, X-Mine\r\nKeep-Alive: timeout=5, max=1000\r\nX-Mine: kept\r\n", "x"), "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: timeout=5\r\nContent-Length: 2\r\n\r\nok")
	add("40 delete with body", strings.Replace(post("", "body"), "POST", "DELETE", 1), ok)
	add("40 custom method", strings.Replace(get("/m"), "GET", "rEPORT", 1), ok)
	add("41 reason", get("/"), "HTTP/1.1 299 Quite  All Right!\r\nContent-Length: 0\r\n\r\n")
	add("41 empty reason", get("/"), "HTTP/1.1 799 \r\nContent-Length: 0\r\n\r\n")
	add("42 no date", get("/"), "HTTP/1.1 404 Not Found\r\nContent-Type: text/x\r\nContent-Length: 1\r\n\r\nn")
	add("43 no content type", post("", "x"), "HTTP/1.1 500 Oops\r\ncontent-length: 15\r\n\r\n<html>boom</htm")
	add("44 set-cookie", get("/"), "HTTP/1.1 200 OK\r\nSet-Cookie: a=1; Path=/\r\nset-cookie: b=2\r\nX: y\r\nSET-COOKIE: a=3\r\nContent-Length:   2 \r\n\r\nok")
	add("45 no content", post("", "x"), "HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n")
	add("46 not modified with length", get("/"), "HTTP/1.1 304 Not Modified\r\nETag: \"x\"\r\nContent-Length: 1234\r\n\r\n")
	add("47 head with length", strings.Replace(get("/"), "GET", "HEAD", 1), "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")
	add("48 response chunked with trailers", get("/"), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n04;x=y\r\nwiki\r\nC\r\n in\r\n\r\nchunk\r\n0\r\nX-T: 1\r\n\r\n")
	closing("49 until close", get("/"), "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nuntil the very end")
	closing("50 http 1.0", get("/"), "HTTP/1.0 200 OK\r\nServer: SimpleHTTP/0.6 Python/3.11.2\r\nContent-type: text/html\r\nContent-Length: 5\r\n\r\nhello")
	add("51 early hints", get("/"), "HTTP/1.1 103 Early Hints\r\nLink: </style.css>; rel=preload\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
	return cases
}

package dashboard_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/page"
	"golang.org/x/crypto/ssh"

	"relay"
)

// payloads returns 120 texts that become markup in a page with a mistake in its escaping: 30 vectors, each in
// four forms.
func payloads() []string {
	vectors := []string{
		`<script>alert(1)</script>`, `<script src=data:,alert(1)></script>`, `<img src=x onerror=alert(1)>`, `<svg onload=alert(1)>`,
		`<svg><script>alert(1)</script></svg>`, `<body onload=alert(1)>`, `<iframe srcdoc="<script>alert(1)</script>"></iframe>`,
		`<iframe src=javascript:alert(1)>`, `<a href=javascript:alert(1) autofocus onfocus=alert(1)>x</a>`, `<input autofocus onfocus=alert(1)>`,
		`<details open ontoggle=alert(1)>`, `<video><source onerror=alert(1)></video>`, `<audio src=x onerror=alert(1)>`,
		`<object data=javascript:alert(1)>`, `<embed src=javascript:alert(1)>`, `<math href=javascript:alert(1)>x</math>`,
		`<form action=javascript:alert(1)><button>x</button></form>`, `<button formaction=javascript:alert(1)>x</button>`,
		`<meta http-equiv=refresh content=0;url=javascript:alert(1)>`, `<base href=https://evil.example/>`, `<link rel=stylesheet href=//evil.example/a>`,
		`<style>*{background:url(//evil.example/b)}</style>`, `<div style=animation-name:x onanimationstart=alert(1)>`, `<template><script>alert(1)</script></template>`,
		`<noscript><p title="</noscript><img src=x onerror=alert(1)>">`, `<select><option></select><img src=x onerror=alert(1)>`,
		`<!--><img src=x onerror=alert(1)>-->`, `<![CDATA[<img src=x onerror=alert(1)>]]>`, `<p onclick=alert(1) data-post data-copy=#x id=event>x`,
		`<b data-part data-live=//evil.example/ data-event-id=x id=rows>x</b>`,
	}
	wraps := []func(string) string{
		func(v string) string { return v },
		func(v string) string { return `"'> ` + v + ` <x y="'` },
		func(v string) string { return `</title></textarea></style></script></code></pre>` + v },
		func(v string) string {
			return strings.NewReplacer("<", "&lt;", ">", "&#62;").Replace(v) + strings.NewReplacer("<", "%3C", ">", "%3E").Replace(v) + "\\u003cimg src=x onerror=alert(1)\\u003e${alert(1)}{{alert(1)}}"
		},
	}
	var list []string
	for _, wrap := range wraps {
		for _, v := range vectors {
			list = append(list, wrap(v))
		}
	}
	return list
}

// foreign is an expression for the elements and attributes of a page that only a payload can have made.
const foreign = `[...document.querySelectorAll("*")].filter(e =>
	["IFRAME", "OBJECT", "EMBED", "VIDEO", "AUDIO", "BASE", "STYLE", "MATH", "TEMPLATE", "X", "B"].includes(e.tagName.toUpperCase()) ||
	e.localName === "noscript" && (e.parentElement !== document.body || !/^<p class="dim small">[A-Za-z .]+<\/p>$/.test(e.textContent)) ||
	e.localName === "script" && !SCRIPTS.includes(e.getAttribute("src")) ||
	e.localName === "meta" && e.httpEquiv || e.localName === "img" && !/^\/aliases\/[a-z0-9-]+\/qr\.svg$/.test(e.getAttribute("src")) || e.localName === "link" && new URL(e.href).protocol !== "data:" && new URL(e.href).host !== location.host ||
	[...e.attributes].some(a => /^on/i.test(a.name) || a.name === "style" && !/^--in: \d+;$/.test(a.value) || /^\s*javascript:/i.test(a.value) && a.name !== "title" && a.name !== "value")
).map(e => e.outerHTML.slice(0, 120)).join("\n")`

func TestBrowserPayloadsStayText(t *testing.T) {
	list := payloads()
	if len(list) != 120 {
		t.Fatalf("%d payloads", len(list))
	}
	r := newFixture(t)
	r.online()
	scripts, err := filepath.Glob("assets/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatal(scripts, err)
	}
	foreign := strings.Replace(foreign, "SCRIPTS", `["/assets/scripts.js", "/`+strings.Join(scripts, `", "/`)+`"]`, 1)
	b := newBrowser(t, r)
	call(b, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `for (const f of ["alert", "confirm", "prompt", "print"]) window[f] = () => console.error("a payload ran in " + location);`,
	})
	seen := 0
	look := func(path string, wants int) {
		t.Helper()
		if path != "" {
			b.open(path)
		}
		seen++
		b.until(`document.readyState === "complete"`)
		if found := value[string](b, foreign); found != "" {
			t.Errorf("%s: markup got through: %s", path, found)
		}
		if n := value[int](b, `(document.documentElement.outerHTML.match(/alert\(1\)|evil\.example/g) || []).length`); n < wants {
			t.Errorf("%s: %d traces of payloads, want at least %d: they are not where they were to be", path, n, wants)
		}
	}
	// Each payload is in one event: in its path, query and provider fields, and in the reason and a header of
	// its response. The rows arrive live.
	b.open("/aliases/hook")
	b.until(`document.querySelector("#link").textContent === "live"`)
	var last relay.ID
	for _, p := range list {
		r.answers(func([]byte, []byte) string {
			return fmt.Sprintf("HTTP/1.1 299 %s\r\nX-Back: %s\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s", p, p, len(p), p)
		})
		target := strings.ReplaceAll(p, " ", "/")
		last = r.send(post("/"+target+"?q="+target, `{"type":"x"}`, "X-GitHub-Event: "+p, "X-GitHub-Delivery: "+p))
	}
	b.until(fmt.Sprintf(`document.querySelector("#%s")`, last))
	b.until(`document.querySelectorAll("#rows > li").length === 120`)
	look("", 200)
	look("/aliases/hook?cursor="+last.String(), 100)
	look("/events/"+last.String()+"?response=raw", 5)
	look("/aliases/hook?q="+url.QueryEscape(list[31]), 1)
	for _, p := range []string{list[30], list[62]} {
		look("/aliases/hook?status="+url.QueryEscape(p)+"&since="+url.QueryEscape(p)+"&path="+url.QueryEscape(p)+"&cursor="+url.QueryEscape(p), 0)
	}

	// A method is a token (RFC 9110), which has only few of the characters that markup needs.
	r.answers(func([]byte, []byte) string { return ok })
	for _, method := range []string{"&ltscript&gtalert`1`", "&#60img&#62", "'onfocus'|alert`1`", "`$alert`1`", "%3Csvg%3E", "__proto__"} {
		id := r.send(method + " /method HTTP/1.1\r\nHost: hook.localhost\r\nContent-Length: 0\r\n\r\n").String()
		look("/events/"+id, 0)
		if shown := value[string](b, `document.querySelector("h1 .method").textContent`); shown != method {
			t.Errorf("the method %s is shown as %s", method, shown)
		}
	}
	look("/aliases/hook?path=/method", 0)

	// For each kind of body, one event has all payloads in its body and in the head of its response.
	head, bodies := packed(list)
	json := bodies["application/json"]
	r.answers(func([]byte, []byte) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\n%sContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", head, len(json), json)
	})
	var id string
	for kind, body := range bodies {
		id = r.send(fmt.Sprintf("POST / HTTP/1.1\r\nHost: hook.localhost\r\n%sContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", head, kind, len(body), body)).String()
		look("/events/"+id, 300)
	}
	look("/events/"+id+"?body=raw&response=hex", 100)
	look("/aliases/hook/send?from="+id, 100)
	b.click("#preview")
	b.see("#preview-of")
	look("", 100)
	r.answers(func([]byte, []byte) string {
		body := strings.Replace(json, "1", "2", 40)
		return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	})
	r.replay(id)
	look("/events/"+id+"?diff=1,2", 300)
	look(regexp.MustCompile(`/s/[A-Za-z0-9_-]+`).FindString(r.submit("/events/"+id+"/shares", url.Values{"view": {"on"}}, 200)), 100)

	r.names(list)
	look("/account", 200)
	look("/account/audit", 100)
	look("/account/audit?who="+url.QueryEscape(list[0])+"&on="+url.QueryEscape(list[30]), 1)
	look("/aliases/hook/settings", 1)
	look("/link/"+url.PathEscape(strings.ReplaceAll(list[32], "/", "")), 0)
	b.expect(404, 422)
	t.Logf("%d payloads, %d pages", len(list), seen)
}

// packed returns a head with all payloads as header lines, and bodies by media type, nearly all of which
// contain all payloads.
func packed(list []string) (head string, bodies map[string]string) {
	var lines, fields, parts strings.Builder
	items := make([]string, len(list))
	for i, p := range list {
		fmt.Fprintf(&lines, "X-P%d: %s\r\n", i, p)
		items[i] = fmt.Sprintf("%q", p)
		fmt.Fprintf(&fields, "&%s=%s", url.QueryEscape(p), url.QueryEscape(p))
		quoted := strings.ReplaceAll(p, `"`, `\"`)
		fmt.Fprintf(&parts, "--b\r\nContent-Disposition: form-data; name=\"%s\"; filename=\"%s\"\r\nContent-Type: %s\r\n\r\n%s\r\n", quoted, quoted, p, p)
	}
	return lines.String(), map[string]string{
		"text/html": strings.Join(list, "\n"), "application/x-www-form-urlencoded": fields.String()[1:],
		"multipart/form-data; boundary=b": parts.String() + "--b--\r\n", "image/svg+xml": list[3],
		"application/json": "[" + strings.Join(items, ",") + "]",
	}
}

// names stores payloads as names of keys and tokens, and as source and User-Agent of sessions. The settings
// get fixed texts with markup.
func (r *fixture) names(list []string) {
	r.t.Helper()
	ctx, sys := r.t.Context(), relay.System()
	who, err := r.s.SessionOwner(ctx, r.session)
	must(r.t, err)
	for i, p := range list {
		if i%4 == 0 {
			public, _, err := ed25519.GenerateKey(rand.Reader)
			must(r.t, err)
			key, err := ssh.NewPublicKey(public)
			must(r.t, err)
			_, err = r.s.AddKey(ctx, who, "", p[:min(len(p), 100)], string(ssh.MarshalAuthorizedKey(key)))
			must(r.t, err)
			link, err := r.s.CreateLoginLink(ctx, sys, "alice", 0)
			must(r.t, err)
			_, _, err = r.s.UseLoginLink(ctx, link, p, p)
			must(r.t, err)
		}
		_, _, err = r.s.CreateToken(ctx, who, relay.Token{Name: p[:min(len(p), 100)], Scopes: relay.ScopeEventsRead})
		must(r.t, err)
	}
	r.submit("/aliases/hook/settings", url.Values{"hostHeader": {list[0]}}, http.StatusUnprocessableEntity)
	_, err = r.s.SetAlias(ctx, who, "hook", func(set *relay.Settings) error { set.HostHeader = `"'><svg/onload=alert(1)>`; return nil })
	must(r.t, err)
}

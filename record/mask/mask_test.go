package mask_test

import (
	"bytes"
	"compress/gzip"
	"compress/zlib"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"relay/record/body"
	"relay/record/mask"
)

// secret is the value that must not be shown. It contains every character that some encoding changes.
const secret = "s3cret/of+the-test=="

// seen returns the masked text of a body whose Content-Type is label. The body comes in a message with the
// given header lines; each of the lines may contain the secret.
func seen(t *testing.T, label, text string, lines ...string) (shown string, whole bool) {
	t.Helper()
	r := body.Read(body.NewLabel(label), []byte(text), false, 1<<20)
	m := mask.New("hook.example.com")
	pass := func() {
		for _, line := range lines {
			name, value, _ := strings.Cut(line, ": ")
			m.Header(name, value, "")
		}
		shown, _, whole = m.Body(r)
	}
	pass()
	m.Learned()
	pass()
	return shown, whole
}

// TestSecretsAreMaskedWhereverTheyStand: the value of a secret header line or field is shown nowhere else in
// the body, in whatever coding it occurs.
func TestSecretsAreMaskedWhereverTheyStand(t *testing.T) {
	t.Parallel()
	quoted := func(s string) string { p, _ := json.Marshal(s); return string(p) }
	nested := `{"a":"` + secret + `"}`
	deep := secret // more often coded than normalise decodes
	for range 6 {
		deep = url.QueryEscape(deep)
	}
	for name, other := range map[string]string{
		"as it is":                       secret,
		"in a sentence":                  "your token is " + secret + ".",
		"in an address":                  "https://a.b/c?x=1&y=" + url.QueryEscape(secret) + "&z=2",
		"in a path":                      "https://a.b/" + url.PathEscape(secret) + "/c",
		"in an address in an address":    "https://a.b/?to=" + url.QueryEscape("https://c.d/?y="+url.QueryEscape(secret)),
		"in addresses, six times":        "https://a.b/?to=" + deep,
		"in small percent codes":         "https://a.b/?y=" + strings.ToLower(url.QueryEscape(secret)),
		"in JSON in a string":            nested,
		"in JSON in a string, twice":     quoted(nested),
		"with slashes that are escaped":  strings.ReplaceAll(secret, "/", `\/`),
		"in base64":                      base64.StdEncoding.EncodeToString([]byte("svc:" + secret)),
		"in base64 at another place":     base64.StdEncoding.EncodeToString([]byte("xx" + secret + "yy")),
		"in base64 at a third place":     base64.URLEncoding.EncodeToString([]byte("x" + secret + "y")),
		"in an HTML attribute":           `<a href="/x?y=` + secret + `&amp;z=1">`,
		"behind another word":            "x" + secret + "y",
		"in what is called Bearer":       "Authorization: Bearer " + secret,
		"in capitals":                    strings.ToUpper(secret),
		"in hex with capitals":           strings.ToUpper(hex.EncodeToString([]byte(secret))),
		"in base64 of gzip":              packed(t, "gzip", `{"a":"`+secret+`"}`),
		"in base64 of zlib":              packed(t, "zlib", "see "+secret),
		"in base64 of zstd":              packed(t, "zstd", `{"a":"`+secret+`"}`),
		"in base64 of gzip in gzip":      packed(t, "gzip", "see "+packed(t, "gzip", secret)),
		"in a query that is not escaped": "?a=" + secret,
	} {
		for label, text := range map[string]string{
			"application/json":                  `{"token":` + quoted(secret) + `,"other":` + quoted(other) + `,"kept":"k3pt"}`,
			"application/x-www-form-urlencoded": "token=" + url.QueryEscape(secret) + "&other=" + url.QueryEscape(other) + "&kept=k3pt",
			"text/plain":                        "kept=k3pt " + other,
			"application/x-ndjson":              `{"token":` + quoted(secret) + "}\n{\"other\":" + quoted(other) + ",\"kept\":\"k3pt\"}\n",
			"text/xml":                          "<r><x:token>" + secret + "</x:token><!-- " + other + " --><kept>k3pt</kept></r>",
			"multipart/form-data; boundary=b": "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n" + secret + "\r\n--b\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\n" +
				other + "\r\n--b\r\nContent-Disposition: form-data; name=\"kept\"\r\n\r\nk3pt\r\n--b--\r\n",
		} {
			shown, whole := seen(t, label, text, "X-Token: "+secret)
			coded := strings.TrimRight(base64.StdEncoding.EncodeToString([]byte(secret)), "=")
			if plain, _ := url.QueryUnescape(shown); strings.Contains(shown, secret) || strings.Contains(plain, secret) || strings.Contains(shown, "s3cret") || strings.Contains(shown, coded[:12]) || strings.Contains(shown, other) {
				t.Errorf("%s, %s: %s", label, name, shown)
			}
			if !whole || !strings.Contains(shown, "k3pt") {
				t.Errorf("%s, %s: too much is masked: %v %s", label, name, whole, shown)
			}
		}
	}
}

// packed returns the base64 of a compressed text.
func packed(t *testing.T, coding, text string) string {
	t.Helper()
	var b bytes.Buffer
	var w io.WriteCloser = gzip.NewWriter(&b)
	switch coding {
	case "zlib":
		w = zlib.NewWriter(&b)
	case "zstd":
		z, err := zstd.NewWriter(&b)
		if err != nil {
			t.Fatal(err)
		}
		w = z
	}
	if _, err := io.WriteString(w, text); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// TestPackedText: compressed data in base64 is shown if it contains no secret, whatever its size. Data that
// contains a field with the name of a secret is masked.
func TestPackedText(t *testing.T) {
	t.Parallel()
	noise := ""
	for i := range 40 {
		noise += strconv.Itoa(i*i*i) + " "
	}
	harmless, inside := packed(t, "gzip", `{"note":"nothing to hide here"}`), packed(t, "gzip", `{"password":"S3cr3t-of-it"}`)
	for text, want := range map[string]string{
		`{"data":"` + harmless + `"}`:                               harmless,
		`{"data":"` + inside + `"}`:                                 `{"data":"[masked]"}`,
		"data=" + inside + "&kept=1":                                "data=[masked]&kept=1",
		`{"data":"` + inside[:len(inside)-10] + `"}`:                "[masked]",
		`{"data":"` + inside + `","a":"see S3cr3t-of-it and more"}`: "see [masked] and more",
		`{"data":"UEsDBBQAAAAIAAAAIQAAAAAAAAAA"}`:                   "[masked]",
		`{"data":"/Td6WFoAAATm1rRGAgAhARYAAAB0"}`:                   "[masked]",
		`{"data":"QlpoOTFBWSZTWQv8ZCsAAAMZgEAA"}`:                   "[masked]",
		`{"id":"eJ7Kq2Lw9ZxV4bNm1sTr"}`:                             "eJ7Kq2Lw9ZxV4bNm1sTr",
	} {
		if shown, _ := seen(t, "", text); !strings.Contains(shown, want) || strings.Contains(shown, inside[:20]) {
			t.Errorf("%s is shown as %s, want %s", text, shown, want)
		}
	}
	for level := range zlib.BestCompression + 1 {
		for _, text := range []string{`{"password":"S3cr3t-of-it"}`, "a note, and password=S3cr3t-of-it"} {
			var b bytes.Buffer
			w, _ := zlib.NewWriterLevel(&b, level)
			_, _ = io.WriteString(w, text)
			_ = w.Close()
			coded := base64.StdEncoding.EncodeToString(b.Bytes())
			if shown, _ := seen(t, "", `{"data":"`+coded+`"}`); strings.Contains(shown, coded[:20]) {
				t.Errorf("zlib of level %d is shown: %s", level, shown)
			}
		}
	}
	for _, line := range []int{64, 76} {
		for text, hidden := range map[string]bool{"password=S3cr3t-of-it": true, "nothing to hide": false} {
			lines := packed(t, "gzip", noise+text)
			for i := line; i < len(lines); i += line + 2 {
				lines = lines[:i] + "\r\n" + lines[i:]
			}
			for _, kind := range []string{"text/plain", "application/json"} {
				sent := lines
				if kind != "text/plain" {
					quoted, _ := json.Marshal(lines)
					sent = string(quoted)
				}
				if shown, _ := seen(t, kind, sent); strings.Contains(shown, lines[line+2:line+40]) == hidden {
					t.Errorf("%s in lines of %d digits, %s, is shown as %s", text, line, kind, shown)
				}
			}
		}
	}
	many := `["` + strings.Repeat(harmless+`","`, 200) + inside + `"]`
	if shown, _ := seen(t, "", many); !strings.Contains(shown, harmless) || strings.Contains(shown, inside) {
		t.Errorf("%.200s… %s", shown, shown[len(shown)-200:])
	}
}

// TestSecretsByTheirPlace: values are masked because of the names, pairs, URLs and fields around them.
func TestSecretsByTheirPlace(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"Token":"2336412f37fb687f5d51e6e2425","SubscribeURL":"https://sns.a.b/?Action=Confirm&Token=2336412f37fb687f5d51e6e2425"}`: `{"Token": "[masked]","SubscribeURL":"https://sns.a.b/[masked]"}`,
		`{"data":{"validationCode":"512d38b6-c7b8","validationUrl":"https://rp.a.b:553/validate?id=512d38b6-c7b8&t=2026"}}`:          `{"data":{"validationCode": "[masked]","validationUrl":"https://rp.a.b:553/[masked]"}}`,
		`{"a":"https://svc:S3@host/x?y=1","b":"https:\/\/user:pa%40ss@h"}`:                                                           `{"a":"https://[masked]@host/x?y=1","b":"https:\/\/[masked]@h"}`,
		`{"a":"https://b.s3.a.b/k?X-Amz-Credential=AK/1&X-Amz-Expires=60&X-Amz-Signature=abc"}`:                                      `{"a":"https://b.s3.a.b/k?X-Amz-Credential=[masked]&X-Amz-Expires=60&X-Amz-Signature=[masked]"}`,
		`{"a":"https://x.blob.a.b/c?sv=1&sig=abc%2B&se=2"}`:                                                                          `{"a":"https://x.blob.a.b/c?sv=1&sig=[masked]&se=2"}`,
		`{"a":"https://hooks.slack.com/services/T0/B0/XX","b":"https://discord.com/api/webhooks/1/XX?wait=1"}`:                       `{"a":"https://hooks.slack.com/[masked]","b":"https://discord.com/api/webhooks/[masked]"}`,
		`{"response_url":"https://hooks.a.b/commands/1234/5678"}`:                                                                    `{"response_url":"https://hooks.a.b/[masked]"}`,
		`[{"name":"DB_PASSWORD","value":"S"},{"value":"S","key":"apiKey"},{"name":"PORT","value":"80"}]`:                             `[{"name":"DB_PASSWORD","value":"[masked]"},{"value":"[masked]","key": "[masked]"},{"name":"PORT","value":"80"}]`,
		`[["Authorization","Bearer S"],["Accept","a/b"]]`:                                                                            `[["Authorization","[masked]"],["Accept","a/b"]]`,
		`{"otp":482913,"n":482913,"m":4829130}`:                                                                                      `{"otp": "[masked]","n":"[masked]","m":4829130}`,
		`{"code":"4/0AX4XfWh1","grant_type":"x"}`:                                                                                    `{"code":"4/0AX4XfWh1","grant_type":"x"}`,
		`{"code":"4a0AX4XfWhabcdefgh","error":{"code":"card_declined"}}`:                                                             `{"code": "[masked]","error":{"code":"card_declined"}}`,
		"grant_type=authorization_code&code=abc&country=DE":                                                                          "grant_type=authorization_code&code=[masked]&country=DE",
		"pass%77ord%zz=S&n=1":                               "pass%77ord%zz=[masked]&n=1",
		"// v1\n{\"password\":\"S\", \"n\": 1}":             "// v1\n{\"password\":\"[masked]\", \"n\": 1}",
		"user: ann\npassword: S x\nport: 80\n":              "user: ann\npassword: [masked]\nport: 80\n",
		"see https://a.b/cb?state=x&code=abc and more":      "see https://a.b/cb?state=x&code=[masked] and more",
		"<a><password>S</password><b key='S'/><c>x</c></a>": "<a><password>[masked]</password><b key='[masked]'/><c>x</c></a>",
	} {
		if shown, _ := seen(t, "", text); shown != want {
			t.Errorf("%s\nis shown as\n%s\nwant\n%s", text, shown, want)
		}
	}
}

// TestSecretsInEntities: a secret is found if its characters are written as XML or HTML entities, as JSON escapes
// or as percent codes, and also if one of these encodings is encoded again by the same or another one.
func TestSecretsInEntities(t *testing.T) {
	t.Parallel()
	for name, coded := range map[string]string{
		"in JSON":               strings.NewReplacer("/", `\u0026#x2F;`, "=", `\u0026#x3D;`).Replace(secret),
		"in percent codes":      strings.NewReplacer("/", "%26%23x2F%3B", "=", "%26%23x3D%3B").Replace(secret),
		"JSON in percent codes": strings.NewReplacer("/", "%5Cu002f", "=", `%5C%5Cu003d`).Replace(secret),
		"percent codes in JSON": strings.NewReplacer("/", `\u00252F`, "=", `\u00253d`).Replace(secret),
		"percent codes twice":   strings.NewReplacer("/", "%252F", "=", "%25253d").Replace(secret),
		"JSON in entities":      strings.NewReplacer("/", "&#92;u002f", "=", "&#92;u003d").Replace(secret),
		"once":                  strings.NewReplacer("/", "&#x2F;", "=", "&#x3D;").Replace(secret),
		"twice":                 strings.NewReplacer("/", "&amp;#x2F;", "=", "&amp;#x3D;").Replace(secret),
	} {
		for label, text := range map[string]string{
			"text/plain": "see " + coded + " k3pt", "text/html": "<p title='" + coded + "'>k3pt</p>", "text/xml": "<r><a>" + coded + "</a><kept>k3pt</kept></r>",
		} {
			if shown, whole := seen(t, label, text, "X-Token: "+secret); strings.Contains(shown, "s3cret") || strings.Contains(shown, "-test") || !whole || !strings.Contains(shown, "k3pt") {
				t.Errorf("%s, %s: %v %s", label, name, whole, shown)
			}
		}
	}
}

// TestSecretsThatOverlap: if two secrets overlap in a text, no part of either is shown.
func TestSecretsThatOverlap(t *testing.T) {
	t.Parallel()
	const first, second, joined = "alpha11111beta22222", "beta22222gamma33333", "alpha11111beta22222gamma33333"
	for name, text := range map[string]string{
		"one behind the other": joined, "one within the other": "x" + first + "y", "twice": joined + " " + joined, "the second one first": second + "+" + joined,
	} {
		shown, _ := seen(t, "text/plain", "kept "+text+" kept", "X-Token: "+first, "X-Secret: "+second)
		for _, piece := range []string{"alpha", "beta", "gamma", "111", "222", "333"} {
			if strings.Contains(shown, piece) {
				t.Errorf("%s: %s of %s is shown: %s", name, piece, text, shown)
			}
		}
		if strings.Count(shown, "kept") != 2 {
			t.Errorf("%s: too much is masked: %s", name, shown)
		}
	}
	// A third secret stands within the second one, behind the end of the first one.
	const longer, third = second + "delta44444", "gamma33333"
	shown, _ := seen(t, "text/plain", "kept alpha11111"+longer+" kept", "X-Token: "+first, "X-Secret: "+third, "X-Api-Key: "+longer)
	if want := "kept [masked] kept"; shown != want {
		t.Errorf("three secrets that overlap are shown as %s, want %s", shown, want)
	}
}

// TestSecretsOfATarget: secrets are masked in the path, query and fragment of a target. A header value with
// the host of the alias is masked.
func TestSecretsOfATarget(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/a?token=S3&n=1":         "/a?token=[masked]&n=1",
		"/a#token=S3&n=1":         "/a#token=[masked]&n=1",
		"/a?n=1#access_token=S3":  "/a?n=1#access_token=[masked]",
		"/s3cretvalue99/a?n=1":    "/[masked]/a?n=1",
		"/a?n=1&m=s3cretvalue99x": "/a?n=1&m=[masked]x",
	} {
		m := mask.New("")
		m.Header("X-Token", "s3cretvalue99", "")
		m.Learned()
		if got := m.Target(target); got != want {
			t.Errorf("%s is shown as %s, want %s", target, got, want)
		}
	}
	m := mask.New("hook.example.com")
	for value, changed := range map[string]bool{"https://hook.example.com/x": true, "HTTPS://HOOK.example.COM/x": true, "https://other.example.com/x": false} {
		if _, got := m.Header("Link", value, "hook.example.com"); got != changed {
			t.Errorf("%s is masked: %v", value, got)
		}
	}
}

func TestSecretHeaderLines(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"x-functions-key", "Ocp-Apim-Subscription-Key", "verif-hash", "X-Auth", "X-Session-Id", "Authorization", "Cookie", "Set-Cookie", "X-Hub-Signature-256",
		"X-Gitlab-Token", "X-Sig", "apikey", "X-Api-Key", "X-Shopify-Hmac-Sha256", "X-CSRF-Token", "X-Client-Secret", "X-User-Password", "Host", "Referer",
	} {
		if value, changed := mask.New("").Header(name, "S3", ""); !changed || value != mask.Masked {
			t.Errorf("%s: %s", name, value)
		}
	}
	for _, name := range []string{"Content-Type", "User-Agent", "X-GitHub-Event", "X-Request-Id", "Author", "X-Monkey", "X-Keyboard", "Content-Length", "X-Pass-Through"} {
		if value, changed := mask.New("").Header(name, "S3", ""); name != "X-Pass-Through" && (changed || value != "S3") {
			t.Errorf("%s: %s", name, value)
		}
	}
	m := mask.New("")
	for range 2 {
		m.Header("Authorization", "Basic c3ZjOmh1bnRlcjIyMg==", "")
		m.Header("Stripe-Signature", "t=1795860230,v1=5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd", "")
		m.Header("Cookie", "session=abcdefgh12345678; theme=dark", "")
		m.Learned()
	}
	if text := m.Text("1795860230 hunter222 v1 5257a869e7ecebeda32affa62cdca3fa51cad7e77a0e56ff536d0ce8e108d8bd, abcdefgh12345678 dark"); text != "1795860230 [masked] v1 [masked], [masked] dark" {
		t.Error(text)
	}
}

// FuzzMask: a secret is never shown, whatever text surrounds it.
func FuzzMask(f *testing.F) {
	for _, s := range []string{`{"a":"%"}`, "a=%&b=", "%25%32%35", `\\\\u00`, "&amp;%", "://@", "<a>%</a>", `[{"name":"token","value":"%"}]`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		text = strings.Replace(text, "%", "k3ptSecret99", 1)
		for _, label := range []string{"", "application/json", "text/plain", "multipart/form-data; boundary=b"} {
			if shown, _ := seen(t, label, text, "X-Token: k3ptSecret99"); strings.Contains(shown, "k3ptSecret99") {
				t.Errorf("%s: %q is shown as %q", label, text, shown)
			}
		}
	})
}

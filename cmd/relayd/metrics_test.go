package main

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestMetricsAreDocumented: docs/metrics.md names exactly the metrics of a running relay. The alert rules and
// the dashboard use only these metrics.
func TestMetricsAreDocumented(t *testing.T) {
	t.Parallel()
	h := newTestServer(t, map[string]string{
		"tls": "acme", "https-addr": "127.0.0.1:0", "base-url": "https://relay.test", "alias-domain": "relay.test",
		"acme-ca": "https://127.0.0.1:9/directory", "trusted-proxies": "192.0.2.1",
	})
	get := func(url string) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultTransport.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	have := names(`(?m)^# TYPE (relay_\w+) `, get("http://"+h.app.cfg.AdminAddr+"/metrics"))
	told := names("(?m)^\\| `(relay_\\w+)`", string(page))
	for _, name := range have {
		if !slices.Contains(told, name) {
			t.Errorf("docs/metrics.md does not tell of %s", name)
		}
	}
	for _, name := range told {
		if !slices.Contains(have, name) {
			t.Errorf("docs/metrics.md tells of %s, which is not there", name)
		}
	}
	for _, file := range []string{"docs/metrics.md", "deploy/prometheus/relay.rules.yml", "deploy/grafana/relay.json"} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		used := names(`\b(relay_\w+?)(?:_bucket)?\b`, string(text))
		if len(used) < 10 {
			t.Errorf("%s names only %d metrics", file, len(used))
		}
		for _, name := range used {
			if !slices.Contains(have, name) {
				t.Errorf("%s speaks of %s, which is not there", file, name)
			}
		}
	}
}

// TestDeployedRules: the files for Prometheus and Grafana are well-formed. Each alert says what to do, and a
// test sees it fire.
func TestDeployedRules(t *testing.T) {
	t.Parallel()
	dashboard, err := os.ReadFile("../../deploy/grafana/relay.json")
	if err != nil {
		t.Fatal(err)
	}
	if !json.Valid(dashboard) {
		t.Error("deploy/grafana/relay.json is no JSON")
	}
	text, err := os.ReadFile("../../deploy/prometheus/relay.rules.yml")
	if err != nil {
		t.Fatal(err)
	}
	var rules struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(text, &rules, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("../../deploy/prometheus/relay.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	var tested struct {
		Tests []struct {
			AlertRuleTest []struct {
				Alertname string
				ExpAlerts []any `yaml:"exp_alerts"`
			} `yaml:"alert_rule_test"`
		}
	}
	if err := yaml.Unmarshal(tests, &tested); err != nil {
		t.Fatal(err)
	}
	fires := map[string]bool{}
	for _, one := range tested.Tests {
		for _, a := range one.AlertRuleTest {
			fires[a.Alertname] = fires[a.Alertname] || len(a.ExpAlerts) > 0
		}
	}
	for _, r := range rules.Groups[0].Rules {
		if !fires[r.Alert] {
			t.Errorf("no test of the rules sees %s fire", r.Alert)
		}
		if r.Alert == "" || r.Expr == "" || r.Annotations["summary"] == "" || r.Annotations["action"] == "" || r.Labels["severity"] == "" {
			t.Errorf("alert %q misses a part: %+v", r.Alert, r)
		}
	}
}

func names(pattern, text string) (list []string) {
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
		list = append(list, m[1])
	}
	slices.Sort(list)
	return slices.Compact(list)
}

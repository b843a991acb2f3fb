package record_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"relay/record"
)

// settingsPage is the beginning of docs/alias-settings.md. The table follows.
const settingsPage = `# Settings of an alias

Change a setting of an alias with ` + "`relayd alias set`" + ` on the server, in the dashboard (**Settings** of the alias), or by the API:

` + "```sh" + `
relayd alias set stripe-dev autoDeliver=on responseTimeout=10m
relayd alias set stripe-dev responseTimeout=default
` + "```" + `

` + "```" + `
PATCH /api/v1/aliases/stripe-dev
{"autoDeliver": true, "responseTimeout": "10m"}
` + "```" + `

A change holds from the next request on. ` + "`default`" + `, or ` + "`null`" + ` in the API, gives a value back to the server. This page is made from the program
(` + "`make generate`" + `).

| setting | values | default | does |
|---|---|---|---|
`

const settingsMore = `
More about [answers and challenges while offline](providers.md), [the Host line and ` + "`forwarded`" + `](local-frameworks.md) and
[` + "`retention`" + `](operations.md#data-retention).
`

// TestSettingsPage compares docs/alias-settings.md with the settings; -update writes it.
func TestSettingsPage(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString(settingsPage)
	for _, h := range record.SettingsHelp() {
		if h.Text == "" || h.Values == "" {
			t.Errorf("the setting %s has no help", h.Key)
		}
		fmt.Fprintf(&b, "| `%s` | %s | `%s` | %s |\n", h.Key, h.Values, h.Default, h.Text)
	}
	want, file := b.String()+settingsMore, filepath.Join("..", "docs", "alias-settings.md")
	if *update {
		if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("docs/alias-settings.md is not what `make generate` writes; want\n%s", want)
	}
	if help := record.SettingsText(); !strings.Contains(help, "  autoDeliver       on: deliver") || strings.Contains(help, "`") {
		t.Errorf("help for a command:\n%s", help)
	}
}

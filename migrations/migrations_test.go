package migrations_test

import (
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"relay/migrations"
)

// Both engines have the same versions, and no engine has two files of one version, so that a version number has
// one meaning.
func TestEqualVersions(t *testing.T) {
	t.Parallel()
	sqlite, postgres := versions(t, migrations.SQLite()), versions(t, migrations.Postgres())
	if len(sqlite) == 0 {
		t.Fatal("no migrations embedded")
	}
	if d := cmp.Diff(sqlite, postgres); d != "" {
		t.Errorf("sqlite and postgres differ (-sqlite +postgres):\n%s", d)
	}
}

func versions(t *testing.T, dir fs.FS) []string {
	t.Helper()
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range names {
		version, _, ok := strings.Cut(name, "_")
		if !ok || len(version) != 5 {
			t.Errorf("%s: name must start with five digits and an underscore", name)
		}
		if slices.Contains(out, version) {
			t.Errorf("%s: there is another file of this version", name)
		}
		out = append(out, version)
	}
	return out
}

// Both engines must have the same columns in the same order, because the store uses the same SQL for both.
func TestEqualColumns(t *testing.T) {
	t.Parallel()
	sqlite, postgres := columns(t, migrations.SQLite()), columns(t, migrations.Postgres())
	if len(sqlite) < 15 {
		t.Fatalf("found %d tables", len(sqlite))
	}
	if d := cmp.Diff(sqlite, postgres); d != "" {
		t.Errorf("sqlite and postgres differ (-sqlite +postgres):\n%s", d)
	}
}

var tableOf = regexp.MustCompile(`(?s)CREATE TABLE (\w+) \(\n(.*?)\n\)`)

// columns returns the columns of each table, and marks those that are NOT NULL.
func columns(t *testing.T, dir fs.FS) map[string][]string {
	t.Helper()
	names, err := fs.Glob(dir, "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]string{}
	for _, name := range names {
		text, err := fs.ReadFile(dir, name)
		if err != nil {
			t.Fatal(err)
		}
		for _, table := range tableOf.FindAllStringSubmatch(string(text), -1) {
			for line := range strings.Lines(table[2]) {
				column := strings.Fields(line)[0]
				if column != strings.ToLower(column) {
					continue // a key of the table, and not a column
				}
				if strings.Contains(line, "NOT NULL") {
					column += " NOT NULL"
				}
				out[table[1]] = append(out[table[1]], column)
			}
		}
	}
	return out
}

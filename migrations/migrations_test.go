package migrations_test

import (
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"relay/migrations"
)

// Both engines must count alike, or a version number would mean two things.
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
		out = append(out, version)
	}
	return out
}

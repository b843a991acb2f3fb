package journal

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"relay/migrations"
	"relay/store/events"
)

var update = flag.Bool("update", false, "write the migration that makes the function InsertFunction")

// The function InsertFunction of Postgres has a parameter for each column that an insert of a new event writes. If no
// migration makes a function of this name, -update writes one.
func TestInsertFunction(t *testing.T) {
	t.Parallel()
	want := insertFunction()
	names, err := fs.Glob(migrations.Postgres(), "*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(migrations.Postgres(), name)
		if err != nil {
			t.Fatal(err)
		}
		made := regexp.MustCompile(`(?s)CREATE FUNCTION ` + events.InsertFunction + ` .*?END\n\$\$;`).FindString(string(text))
		if made == "" {
			continue
		}
		space := regexp.MustCompile(`\s+`)
		if got, want := space.ReplaceAllString(made, ""), space.ReplaceAllString(want, ""); got != want {
			t.Errorf("%s differs from the columns: give InsertFunction another name, because nodes of earlier versions call this one, and run with -update\n got %s\nwant %s", name, got, want)
		}
		return
	}
	if !*update {
		t.Fatalf("no migration makes %s: run with -update", events.InsertFunction)
	}
	next := fmt.Sprintf("%05d_%s.sql", len(names)+1, events.InsertFunction)
	for folder, text := range map[string]string{
		"postgres": "-- +goose Up\n-- Made from the columns of a new event, see 00011_insert_events.sql.\n-- +goose StatementBegin\n" + want + "\n-- +goose StatementEnd\n",
		"sqlite":   "-- +goose Up\n-- On Postgres this version adds a function that inserts events.\nSELECT 1;\n",
	} {
		if err := os.WriteFile(filepath.Join("../../migrations", folder, next), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("wrote the migration %s", next)
}

// insertFunction returns the statement that makes InsertFunction.
func insertFunction() string {
	var types []string
	inserts := ""
	for i, table := range []struct{ name, columns, types, alias string }{
		{"events", events.EventColumns, events.EventTypes, "e"},
		{"attempts", events.AttemptColumns, events.AttemptTypes, "a"},
		{"payloads", events.PayloadColumns, events.PayloadTypes, "p"},
	} {
		var values []string
		for _, columnType := range strings.Fields(table.types) {
			types = append(types, columnType+"[]")
			values = append(values, fmt.Sprintf("unnest($%d)", len(types)))
		}
		row := strings.Join(values, ", ")
		if i == 0 {
			inserts = fmt.Sprintf("e AS (INSERT INTO events (\n        %s)\n    SELECT\n        %s\n    ON CONFLICT DO NOTHING RETURNING id)", table.columns, row)
		} else {
			inserts += fmt.Sprintf(",\n    %[1]s AS (INSERT INTO %[2]s (\n        %[3]s)\n    SELECT * FROM (SELECT\n        %[4]s) v (\n        %[3]s)\n    WHERE v.event_id IN (SELECT id FROM e))",
				table.alias, table.name, table.columns, row)
		}
	}
	return fmt.Sprintf("CREATE FUNCTION %s (\n    %s\n) RETURNS SETOF UUID LANGUAGE plpgsql AS $$\nBEGIN\n    RETURN QUERY WITH %s\n    SELECT id FROM e;\nEND\n$$;",
		events.InsertFunction, strings.Join(types, ", "), inserts)
}

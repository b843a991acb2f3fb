package main

import (
	"os/exec"
	"testing"

	"relay/store/pgtest"
	"relay/store/schematest"
)

// needTool fails the test if a program is missing. A skipped test would prove nothing.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatalf("%s is not installed; `make setup` does that", name)
	}
	return path
}

func lookPath(name string) string {
	path, _ := exec.LookPath(name)
	return path
}

// onStores runs a test on SQLite and on Postgres.
func onStores(t *testing.T, test func(t *testing.T, flags map[string]string)) {
	t.Helper()
	t.Run("sqlite", func(t *testing.T) { t.Parallel(); test(t, nil) })
	t.Run("postgres", func(t *testing.T) { t.Parallel(); test(t, map[string]string{"database-url": schematest.URL(t)}) })
}

// postgresFlags has the address of an empty schema.
func postgresFlags(t *testing.T) map[string]string {
	t.Helper()
	return map[string]string{"database-url": pgtest.URL(t)}
}

package store_test

import (
	"testing"

	"relay/api"
	"relay/delivery"
	"relay/sshgate"
	"relay/store"
	"relay/store/schematest"
	"relay/store/storetest"
)

// The store implements the interfaces of the other packages.
var (
	_ delivery.Store   = (*store.Store)(nil)
	_ sshgate.Accounts = (*store.Store)(nil)
	_ api.Events       = (*store.Store)(nil)
	_ api.Accounts     = (*store.Store)(nil)
)

func TestSQLite(t *testing.T) {
	storetest.Run(t, func(t testing.TB) store.Options { return store.Options{DataDir: t.TempDir()} })
}

func TestPostgres(t *testing.T) {
	storetest.Run(t, func(t testing.TB) store.Options {
		return store.Options{URL: schematest.URL(t), DataDir: t.TempDir()}
	})
}

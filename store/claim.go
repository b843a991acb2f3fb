package store

// Claim takes the serve lock of a SQLite store ahead of Serve, so that a second server
// is turned away before it migrates, listens or says that it does. On Postgres it does
// nothing: there a second server waits in Serve. Close gives the lock up. To be called
// by who will call Serve, before any other goroutine uses the store.
func (s *Store) Claim() error {
	if s.d.bulk || s.lock != nil {
		return nil
	}
	return s.lockDataDir()
}

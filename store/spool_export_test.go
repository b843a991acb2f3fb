package store

// Hold keeps this process from taking its serve lock again until GoOn, as when it
// does not run for a moment.
func (s *Store) Hold() { s.lockMu.Lock() }

// GoOn ends Hold.
func (s *Store) GoOn() { s.lockMu.Unlock() }

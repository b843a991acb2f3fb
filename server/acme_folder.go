package server

import (
	"context"
	"errors"
	"sync"

	"github.com/caddyserver/certmagic"
)

// folder is where certmagic keeps what it has. One process works on it, so its locks
// are in memory: lock files would outlive a process that was killed, and hold up the
// next one.
type folder struct {
	certmagic.Storage
	mu   sync.Mutex
	held map[string]chan struct{} // closed when the lock is given back
}

func newFolder(dir string) *folder {
	return &folder{Storage: &certmagic.FileStorage{Path: dir}, held: map[string]chan struct{}{}}
}

// Lock waits for a lock until ctx ends.
func (f *folder) Lock(ctx context.Context, name string) error {
	for {
		f.mu.Lock()
		other, taken := f.held[name]
		if !taken {
			f.held[name] = make(chan struct{})
		}
		f.mu.Unlock()
		if !taken {
			return nil
		}
		select {
		case <-other:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Unlock gives a lock back.
func (f *folder) Unlock(_ context.Context, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	held, ok := f.held[name]
	if !ok {
		return errors.New("certificates: the lock " + name + " is not held")
	}
	delete(f.held, name)
	close(held)
	return nil
}

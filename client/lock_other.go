//go:build !unix

package client

import "os"

// withLock calls do without a lock, because this program locks files only on Unix.
func withLock(dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return do()
}

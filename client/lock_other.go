//go:build !unix

package client

import "os"

// withLock does something to the files of a folder; there is no lock here.
func withLock(dir string, do func() error) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return do()
}

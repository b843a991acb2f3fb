// Package certs has the certificates of the TLS listener: from PEM files that may change,
// or ordered from a CA by ACME. Package server does not import it: its certificates and
// answers to challenges are functions that cmd/relayd passes on.
package certs

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Files returns a function for tls.Config.GetCertificate that serves the
// certificate of two PEM files. It checks the files at most once a second, in a
// handshake, and reads them again when one has changed. While the pair cannot be read,
// for example in the middle of a renewal, the last good one stays in use, log (nil =
// none) gets one line, and every check tries again: a corrected file mode does not
// change the time of a file. The error is that of the first read. The function is safe
// for concurrent use.
func Files(cert, key string, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	f := &filePair{cert: cert, key: key, log: log}
	stamp := f.readStamp()
	if err := f.load(stamp); err != nil {
		return nil, err
	}
	return f.get, nil
}

// filePair is the certificate of two files.
type filePair struct {
	cert, key string
	log       *slog.Logger

	mu        sync.Mutex
	stamp     string // of the files that were read last
	lastErr   string // of that read; "" = none
	checkedAt time.Time
	pair      *tls.Certificate
}

// readStamp returns times and sizes of the files, "" if one is missing.
func (f *filePair) readStamp() string {
	f.checkedAt = time.Now()
	stamp := ""
	for _, name := range []string{f.cert, f.key} {
		fi, err := os.Stat(name)
		if err != nil {
			return ""
		}
		stamp += fmt.Sprintf("%d %d ", fi.ModTime().UnixNano(), fi.Size())
	}
	return stamp
}

func (f *filePair) load(stamp string) error {
	f.stamp = stamp
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("read certificate %s with key %s: %w", f.cert, f.key, err)
	}
	f.pair = &pair
	return nil
}

// get reads changed files again. If that fails, the last good pair stays, and each
// different error is logged once.
func (f *filePair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.checkedAt) < time.Second {
		return f.pair, nil
	}
	stamp := f.readStamp()
	if stamp == f.stamp && f.lastErr == "" {
		return f.pair, nil
	}
	err := f.load(stamp)
	switch {
	case err == nil:
		f.lastErr = ""
		f.log.Info("certificate files read again", "cert", f.cert, "expires", f.pair.Leaf.NotAfter)
	case f.lastErr != err.Error():
		f.lastErr = err.Error()
		f.log.Error("changed certificate files cannot be used; the last good certificate stays in use until they can",
			"err", err, "expires", f.pair.Leaf.NotAfter)
	}
	return f.pair, nil
}

// Package certs provides the certificates of the TLS listener: from PEM files that may change, or
// ordered from a CA by ACME. Package server does not import it: cmd/relayd passes functions that
// return certificates and answers to challenges.
package certs

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Files returns a function for tls.Config.GetCertificate that serves the certificate of two PEM files. It
// reads the files again at most once a second, in a handshake, so a renewed pair takes effect without a
// restart, even if neither time nor size of a file has changed. While the pair cannot be read, for example
// during a renewal, the last good one stays in use, and log (nil = none) gets one line. Files itself returns
// an error if the first read fails. The function is safe for concurrent use.
func Files(cert, key string, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	f := &filePair{cert: cert, key: key, log: cmp.Or(log, slog.New(slog.DiscardHandler)), readAt: time.Now()}
	var err error
	if f.pair, err = f.read(); err != nil {
		return nil, err
	}
	return f.get, nil
}

// filePair is a certificate that is read from two files: the certificate cert and its private key.
type filePair struct {
	cert, key string
	log       *slog.Logger

	mu      sync.Mutex
	readAt  time.Time
	lastErr string // error of the last read; "" = none
	pair    *tls.Certificate
}

func (f *filePair) read() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("read certificate %s with key %s: %w", f.cert, f.key, err)
	}
	return &pair, nil
}

// get returns the certificate. It reads the files again if the last read was more than a second ago. If that
// fails, the last good pair stays, and the error is logged if it differs from that of the last read.
func (f *filePair) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.readAt) < time.Second {
		return f.pair, nil
	}
	f.readAt = time.Now()
	pair, err := f.read()
	switch {
	case err != nil && f.lastErr != err.Error():
		f.lastErr = err.Error()
		f.log.Error("changed certificate files cannot be used; the last good certificate stays in use until they can",
			"err", err, "expires", f.pair.Leaf.NotAfter)
	case err == nil && (f.lastErr != "" || !slices.EqualFunc(pair.Certificate, f.pair.Certificate, bytes.Equal)):
		f.pair, f.lastErr = pair, ""
		f.log.Info("certificate files read again", "cert", f.cert, "expires", f.pair.Leaf.NotAfter)
	}
	return f.pair, nil
}

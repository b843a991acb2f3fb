package server

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// CertFiles serves a certificate from two PEM files, for tls.Config.GetCertificate.
// The files are looked at again at most once a second; when one has changed, the
// pair is read anew. A pair that cannot be read, as in the middle of a renewal,
// leaves the last good one in use, and log (nil = none) gets a line; it is tried again
// with every look, since a mode that is set right, or a descriptor that is free again,
// does not show on a file. The error is that of the first reading. The function is safe
// for concurrent use.
func CertFiles(cert, key string, log *slog.Logger) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	f := &certFiles{cert: cert, key: key, log: log}
	stamp := f.look()
	if err := f.load(stamp); err != nil {
		return nil, err
	}
	return f.get, nil
}

type certFiles struct {
	cert, key string
	log       *slog.Logger

	mu     sync.Mutex
	stamp  string // of what was read last, good or bad
	fault  string // what is wrong with that; "" = nothing
	looked time.Time
	pair   *tls.Certificate
}

// look describes the files as they are now.
func (f *certFiles) look() string {
	f.looked = time.Now()
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

func (f *certFiles) load(stamp string) error {
	f.stamp = stamp
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("read certificate %s with key %s: %w", f.cert, f.key, err)
	}
	f.pair = &pair
	return nil
}

// renew reads changed files; the last good pair stays where they are no good. The log
// is told once of each fault.
func (f *certFiles) renew(stamp string) {
	if err := f.load(stamp); err != nil {
		if f.fault != err.Error() {
			f.log.Error("changed certificate files cannot be used; the last good certificate stays in use until they can",
				"err", err, "expires", f.pair.Leaf.NotAfter)
		}
		f.fault = err.Error()
		return
	}
	f.fault = ""
	f.log.Info("certificate files read again", "cert", f.cert, "expires", f.pair.Leaf.NotAfter)
}

func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) >= time.Second {
		if stamp := f.look(); stamp != f.stamp || f.fault != "" {
			f.renew(stamp)
		}
	}
	return f.pair, nil
}

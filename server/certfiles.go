package server

import (
	"crypto/tls"
	"fmt"
	"os"
	"sync"
	"time"
)

// CertFiles serves a certificate from two PEM files, for tls.Config.GetCertificate.
// The files are looked at again at most once a second; when one has changed, the
// pair is read anew. A pair that cannot be read, as in the middle of a renewal,
// leaves the last good one in use. The error is that of the first reading. The
// function is safe for concurrent use.
func CertFiles(cert, key string) (func(*tls.ClientHelloInfo) (*tls.Certificate, error), error) {
	f := &certFiles{cert: cert, key: key}
	stamp := f.look()
	if err := f.load(stamp); err != nil {
		return nil, err
	}
	return f.get, nil
}

type certFiles struct {
	cert, key string

	mu     sync.Mutex
	stamp  string // of the pair in use
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
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return fmt.Errorf("read certificate %s with key %s: %w", f.cert, f.key, err)
	}
	f.pair, f.stamp = &pair, stamp
	return nil
}

func (f *certFiles) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) >= time.Second {
		if stamp := f.look(); stamp != "" && stamp != f.stamp {
			_ = f.load(stamp) // the last good pair stays
		}
	}
	return f.pair, nil
}

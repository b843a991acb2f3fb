package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"database/sql"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The helpers in this file make the broken files, servers and databases that the tests of doctor need.

// silentAddr returns an address that accepts connections and never answers.
func silentAddr(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0") // the system completes connections without an Accept
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	return ln.Addr().String()
}

// postgresWithoutTLS returns the address of a server that refuses TLS in the way of a Postgres without TLS.
func postgresWithoutTLS(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.ReadFull(conn, make([]byte, 8))
				_, _ = io.WriteString(conn, "N")
				_, _ = io.Copy(io.Discard, conn)
				_ = conn.Close()
			}()
		}
	}()
	return ln.Addr().String()
}

// passTCP returns the address of a proxy that forwards each connection, without changing a byte, to the address
// in the parameter to.
func passTCP(t *testing.T, to string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close()
				return
			}
			go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
			go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
		}
	}()
	return ln.Addr().String()
}

// entryAhead adds an audit entry to a SQLite file. The time of the entry is one hour in the future.
func entryAhead(path string) error {
	db, err := sql.Open("sqlite", path)
	if err != nil {
		return err
	}
	_, err = db.Exec(`INSERT INTO audit (at, actor, account_id, subject_id, action, target, detail) VALUES (?, 'system', 0, 0, 'user.add', 'x', '')`, time.Now().Add(time.Hour).UnixMicro())
	return errors.Join(err, db.Close())
}

// foreignFile gives a file in the data dir to another user. Only root can do that: without root rights,
// foreignFile instead checks that doctor reports the folder for temporary files, which belongs to root, and
// skips the test.
func foreignFile(t *testing.T, dir string) {
	t.Helper()
	if err := os.Chown(filepath.Join(dir, "ssh_host_ed25519_key"), 12345, 12345); err != nil {
		if list := checkOwners(Config{DataDir: os.TempDir()}); len(list) == 0 {
			t.Fatalf("files of another user than that of %s were not seen", os.TempDir())
		}
		t.Skip("only root can give a file away; the shared folder for temporary files was seen")
	}
}

// withDatabase returns a database URL with another database name.
func withDatabase(t *testing.T, address, name string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + name
	return u.String()
}

// weakRole creates a role that may log in and use the schema, but create nothing. It returns a database URL
// with this role.
func weakRole(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("postgres", address)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	role := fmt.Sprintf("weak_%d", time.Now().UnixNano())
	if _, err := db.ExecContext(t.Context(), "CREATE ROLE "+role+" LOGIN; GRANT USAGE ON SCHEMA "+u.Query().Get("search_path")+" TO "+role); err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return u.String()
}

// certificate writes a self-signed certificate for names, and its key.
func certificate(t *testing.T, names []string, until time.Time) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: until.Add(-90 * 24 * time.Hour), NotAfter: until,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

// issuedCertificate writes a certificate that a new CA has signed, and the private key. If whole is set, the
// file also contains the certificate of the CA.
func issuedCertificate(t *testing.T, names []string, whole bool) (certFile, keyFile string) {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(80 * 24 * time.Hour)
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "issuer"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, KeyUsage: x509.KeyUsageCertSign,
	}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: until, IssuingCertificateURL: []string{"http://issuer.test/ca.der"},
	}, ca, &key.PublicKey, caKey)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	chain := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if whole {
		chain = append(chain, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caDER})...)
	}
	return write(t, "cert.pem", string(chain)), write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

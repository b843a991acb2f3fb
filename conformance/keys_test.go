package conformance

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/crypto/ssh"
)

// dropbearKey returns the path of the admin's key in Dropbear's format.
func (r *relayServer) dropbearKey() string {
	file := filepath.Join(r.dir, "id_dropbear")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	r.tool("dropbearconvert", "openssh", "dropbear", r.key, file)
	return file
}

// puttyKey returns the path of the admin's key in PuTTY's format, the only format that plink reads.
func (r *relayServer) puttyKey() string {
	file := filepath.Join(r.dir, "id.ppk")
	if _, err := os.Stat(file); err == nil {
		return file
	}
	r.tool("puttygen", r.key, "-O", "private", "-o", file)
	return file
}

func (r *relayServer) tool(name string, args ...string) {
	r.t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		r.t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// hostKey returns the fingerprint of the server's host key.
func (r *relayServer) hostKey() string {
	r.t.Helper()
	pem, err := os.ReadFile(filepath.Join(r.dir, "data", "ssh_host_ed25519_key"))
	if err != nil {
		r.t.Fatal(err)
	}
	signer, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(ssh.FingerprintSHA256(signer.PublicKey()))
}

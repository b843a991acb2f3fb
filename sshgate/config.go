package sshgate

import (
	"runtime"
	"strings"

	gliderlabs "github.com/gliderlabs/ssh"
	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

// maxAuthTries lets an agent with many keys reach the right one.
const maxAuthTries = 20

// config makes the configuration of one connection. It is never shared: gliderlabs
// adds to it, and the callbacks are those of this connection. It must not wait for
// anything: gliderlabs holds a lock meanwhile.
func (srv *Server) config(ctx gliderlabs.Context) *ssh.ServerConfig {
	c := connOf(ctx)
	l := &login{c: c}
	return &ssh.ServerConfig{
		Config: ssh.Config{
			KeyExchanges: []string{ssh.KeyExchangeMLKEM768X25519, ssh.KeyExchangeCurve25519},
			Ciphers:      ciphers(hasAES() && !strings.HasPrefix(c.version, "SSH-2.0-dropbear")),
			MACs:         []string{ssh.HMACSHA256ETM, ssh.HMACSHA512ETM},
		},
		PublicKeyAuthAlgorithms: []string{
			ssh.KeyAlgoED25519, ssh.KeyAlgoSKED25519, ssh.KeyAlgoSKECDSA256,
			ssh.KeyAlgoECDSA256, ssh.KeyAlgoECDSA384, ssh.KeyAlgoECDSA521,
			ssh.KeyAlgoRSASHA256, ssh.KeyAlgoRSASHA512,
		},
		MaxAuthTries: maxAuthTries,
		// gliderlabs switches NoClientAuth on when it has no handlers of its own,
		// so the method none must be refused here.
		NoClientAuthCallback: l.none,
		PublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey) (p *ssh.Permissions, err error) {
			onOtherStack(func() { p, err = l.offered(meta, key) })
			return p, err
		},
		VerifiedPublicKeyCallback: func(meta ssh.ConnMetadata, key ssh.PublicKey, _ *ssh.Permissions, _ string) (p *ssh.Permissions, err error) {
			onOtherStack(func() { p, err = l.verified(meta, key) })
			return p, err
		},
		KeyboardInteractiveCallback: l.interactive,
		PreAuthConnCallback:         l.begin,
		AuthLogCallback:             l.attemptEnded,
	}
}

// onOtherStack runs f in a goroutine of its own and waits for it. Questions to the store make
// a stack grow, and the goroutine of the handshake lives as long as its connection.
func onOtherStack(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}

// serverVersion is what we send in the version exchange: no build number there.
const serverVersion = "SSH-2.0-relayd"

// ciphers lists what is offered. The client's order decides, and OpenSSH prefers
// chacha20, which halves the throughput of a CPU with AES: there it is not
// offered. CTR with encrypt-then-MAC stays for old clients. Dropbear knows
// neither GCM nor encrypt-then-MAC; chacha20 is the only sound choice it has.
func ciphers(gcm bool) []string {
	list := []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM}
	if !gcm {
		list = append([]string{ssh.CipherChaCha20Poly1305}, list...)
	}
	return append(list, ssh.CipherAES256CTR, ssh.CipherAES128CTR)
}

func hasAES() bool {
	switch runtime.GOARCH {
	case "amd64", "386":
		return cpu.X86.HasAES && cpu.X86.HasPCLMULQDQ
	case "arm64":
		return cpu.ARM64.HasAES && cpu.ARM64.HasPMULL || runtime.GOOS == "darwin"
	case "s390x":
		return cpu.S390X.HasAES && cpu.S390X.HasAESGCM
	}
	return false
}

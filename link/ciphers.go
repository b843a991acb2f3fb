package link

import (
	"runtime"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

// gcm are the ciphers that Ciphers prefers.
var gcm = []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM}

// Ciphers lists the ciphers to offer to a peer. The parameter peer has those of the ciphers in gcm that the peer
// offers; nil = none, or unknown. The order in the client's offer decides, and OpenSSH prefers chacha20 and CTR to AES-GCM. On
// a CPU with AES instructions, chacha20 halves the throughput, and CTR needs a hash for each packet.
// Therefore, on such a CPU, a client that supports AES-GCM is offered only that. Other clients are
// also offered CTR, which paramiko needs, and chacha20, the only secure cipher of dropbear.
func Ciphers(peer []string) []string {
	others := []string{ssh.CipherAES256CTR, ssh.CipherAES128CTR}
	switch {
	case !HasAES():
		return slices.Concat([]string{ssh.CipherChaCha20Poly1305}, gcm, others)
	case len(peer) > 0:
		return slices.Clone(gcm)
	}
	return slices.Concat(gcm, []string{ssh.CipherChaCha20Poly1305}, others)
}

// HasAES reports whether the CPU has instructions for AES-GCM.
func HasAES() bool {
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

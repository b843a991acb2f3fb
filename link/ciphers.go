package link

import (
	"runtime"
	"slices"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

// Ciphers lists the ciphers to offer to a peer that offers those in peer; nil = not known. The order of
// the client decides, and OpenSSH's own puts chacha20 and CTR before AES-GCM. Chacha20 halves the
// throughput of a CPU with AES, and CTR has each packet hashed beside: so a client that knows AES-GCM
// is offered nothing else there. Others get CTR with encrypt-then-MAC, as paramiko needs it, and
// chacha20, the only sound choice of dropbear.
func Ciphers(peer []string) []string {
	gcm := []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM}
	others := []string{ssh.CipherAES256CTR, ssh.CipherAES128CTR}
	switch {
	case !HasAES():
		return slices.Concat([]string{ssh.CipherChaCha20Poly1305}, gcm, others)
	case slices.ContainsFunc(peer, func(c string) bool { return slices.Contains(gcm, c) }):
		return gcm
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

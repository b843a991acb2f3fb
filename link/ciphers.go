package link

import (
	"runtime"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sys/cpu"
)

// Ciphers lists what is offered. The client's order decides, and OpenSSH prefers
// chacha20, which halves the throughput of a CPU with AES: there it is not
// offered. CTR with encrypt-then-MAC stays for old clients. Dropbear knows
// neither GCM nor encrypt-then-MAC; chacha20 is the only sound choice it has.
func Ciphers(gcm bool) []string {
	list := []string{ssh.CipherAES128GCM, ssh.CipherAES256GCM}
	if !gcm {
		list = append([]string{ssh.CipherChaCha20Poly1305}, list...)
	}
	return append(list, ssh.CipherAES256CTR, ssh.CipherAES128CTR)
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

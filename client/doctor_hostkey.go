package client

import (
	"context"
	"errors"
	"net"
	"strings"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/knownhosts"
)

var errSeen = errors.New("seen enough")

// hostKey compares the key that the relay shows with the known ones. It stores none: a
// login does that.
func (d *Doctor) hostKey(ctx context.Context) {
	const check = "host key"
	if d.broken {
		d.skip(check)
		return
	}
	hosts := d.Dialer.hostKeys(nil)
	if err := hosts.load(); err != nil {
		d.note(check, VerdictFail, "make the file readable, or remove it", "%v", err)
		return
	}
	conn, err := d.dial(ctx)
	if err != nil {
		d.note(check, VerdictFail, "try again", "%v", err)
		return
	}
	defer conn.Close()
	var verdict error
	_, _, _, err = ssh.NewClientConn(conn, d.addr, &ssh.ClientConfig{
		User: defaultUser, HostKeyAlgorithms: hosts.algorithms(d.addr),
		HostKeyCallback: func(addr string, remote net.Addr, key ssh.PublicKey) error {
			d.shown = key
			verdict = hosts.known(addr, remote, key)
			return errSeen
		},
	})
	if d.shown == nil {
		d.note(check, VerdictFail, fixHostKey(hosts, d.addr), "the relay shows no key of a known kind: %v", err)
		return
	}
	d.judgeKey(hosts, conn.RemoteAddr(), verdict)
}

func fixHostKey(hosts *hostKeys, addr string) string {
	return "ask the operator of the relay; if it was set up anew, remove the old line: ssh-keygen -R '" +
		knownhosts.Normalize(addr) + "' -f " + hosts.fileOf(addr)
}

func (d *Doctor) judgeKey(hosts *hostKeys, remote net.Addr, verdict error) {
	const check = "host key"
	shown := ssh.FingerprintSHA256(d.shown)
	tcp, isTCP := remote.(*net.TCPAddr)
	var unknown *knownhosts.KeyError
	switch {
	case hosts.pin != "" && strings.TrimRight(hosts.pin, "=") == shown:
		d.note(check, VerdictOK, "", "%s is the pinned one", shown)
	case hosts.pin != "":
		d.note(check, VerdictFail, "ask the operator of the relay for its fingerprint", "%s is not the pinned %s", shown, hosts.pin)
	case verdict == nil:
		d.note(check, VerdictOK, "", "%s is known", shown)
	case errors.As(verdict, &unknown) && len(unknown.Want) > 0:
		d.note(check, VerdictFail, fixHostKey(hosts, d.addr), "%s is not the one that is known: somebody may be listening in between", shown)
	case errors.As(verdict, &unknown) && isTCP && tcp.IP.IsLoopback():
		d.note(check, VerdictOK, "", "%s is new, and accepted at the first login: it is this machine", shown)
	case errors.As(verdict, &unknown):
		d.note(check, VerdictFail, "relay login URL pins it, or pass --host-key with the fingerprint that the operator of the relay tells you",
			"%s is not known", shown)
	default:
		d.note(check, VerdictFail, fixHostKey(hosts, d.addr), "%s: %v", shown, verdict)
	}
}

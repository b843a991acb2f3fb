package sshgate

import (
	"io"
	"net"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"relay"
)

// visit is a connection that came to have its key registered. It may hear what has
// become of that, and nothing else: no forward, no command.
type visit struct {
	lines []string
}

// visitKey is where a visit lies in the permissions.
type visitKey struct{}

// visiting is the visit that a login was for; nil for a usual one.
func visiting(p *ssh.Permissions) *visit {
	v, _ := p.ExtraData[visitKey{}].(*visit)
	return v
}

// visitTime bounds the one session of a visit.
const visitTime = 10 * time.Second

// receive serves the one session of a visit: it says what there is to say. A shell
// ends well, a command is refused.
func (c *conn) receive(v *visit, open ssh.NewChannel) {
	c.mu.Lock()
	again := c.received
	c.received = c.received || open.ChannelType() == "session"
	c.mu.Unlock()
	if again || open.ChannelType() != "session" {
		_ = open.Reject(ssh.Prohibited, "a connection of "+enrolUser+"@ registers a key and does nothing else; connect without "+enrolUser+"@")
		return
	}
	ch, reqs, err := open.Accept()
	if err != nil {
		return
	}
	late := time.AfterFunc(visitTime, func() { _ = c.sock.Close() })
	defer late.Stop()
	defer ch.Close()
	eol := "\n"
	for req := range reqs {
		switch req.Type {
		case "pty-req":
			eol = "\r\n"
			_ = req.Reply(true, nil)
		case "shell", "exec":
			_ = req.Reply(true, nil)
			c.answer(v, ch, req.Type == "exec", eol)
			ssh.DiscardRequests(reqs)
			return
		default:
			_ = req.Reply(false, nil)
		}
	}
}

// answer says the lines of a visit and ends its session.
func (c *conn) answer(v *visit, ch ssh.Channel, command bool, eol string) {
	to, lines, exit := io.Writer(ch), v.lines, exitOK
	if command {
		to, exit = ch.Stderr(), exitUsage
		lines = append(lines[:len(lines):len(lines)], "no command was run: a connection of "+enrolUser+"@ only registers a key; type it again without "+enrolUser+"@")
	}
	_, _ = io.WriteString(to, strings.Join(lines, eol)+eol)
	_ = ch.CloseWrite()
	_, _ = ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(exit)}))
	_ = ch.Close()
}

// dialed is how people name this relay to ssh: port where it is not 22, and host,
// with what stands before it, such as a user name.
func dialed(site *relay.Site, before string) string {
	host, port, err := net.SplitHostPort(site.SSHAddr)
	switch {
	case err != nil:
		return before + site.SSHAddr
	case port == "22":
		return before + host
	}
	return "-p " + port + " " + before + host
}

package link

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// kexInit returns the KEXINIT packet of a client. Its parameters are the lists of ciphers that the client offers:
// ciphers for the direction to the server, back for the direction to the client.
func kexInit(ciphers, back string) []byte {
	payload := append([]byte{msgKexInit}, make([]byte, 16)...)
	for _, list := range []string{"curve25519-sha256", "ssh-ed25519", ciphers, back, "hmac-sha2-256", "hmac-sha2-256", "none", "none", "", ""} {
		payload = binary.BigEndian.AppendUint32(payload, uint32(len(list)))
		payload = append(payload, list...)
	}
	payload = append(payload, 0, 0, 0, 0, 0)
	const padding = 4
	p := binary.BigEndian.AppendUint32(nil, uint32(1+len(payload)+padding))
	return append(append(append(p, padding), payload...), make([]byte, padding)...)
}

// TestPeerCiphers: PeerCiphers returns the AES-GCM ciphers that the peer offers for both directions, in whatever
// pieces they arrive, and nil for other packets. x/crypto still gets all bytes.
func TestPeerCiphers(t *testing.T) {
	t.Parallel()
	const version = "SSH-2.0-Test\r\n"
	const both = "aes128-ctr,aes128-gcm@openssh.com"
	whole := string(kexInit(both, both))
	huge := binary.BigEndian.AppendUint32(nil, 1<<31)
	for name, c := range map[string]struct {
		pieces []string
		want   []string
	}{
		"with the version":     {[]string{version + whole}, []string{"aes128-gcm@openssh.com"}},
		"after it":             {[]string{version, whole}, []string{"aes128-gcm@openssh.com"}},
		"byte by byte":         {strings.Split(version+whole, ""), []string{"aes128-gcm@openssh.com"}},
		"and more":             {[]string{version + whole + "more"}, []string{"aes128-gcm@openssh.com"}},
		"GCM one way only":     {[]string{version + string(kexInit(both, "aes128-ctr"))}, nil},
		"another message":      {[]string{version + string(append([]byte{0, 0, 0, 12, 4, 2}, make([]byte, 10)...))}, nil},
		"an impossible length": {[]string{version + string(huge) + "\x04\x14"}, nil},
		"no room for padding":  {[]string{version + "\x00\x00\x00\x05\xff\x14\x00\x00\x00"}, nil},
		"a list beyond it":     {[]string{version + whole[:22] + "\xff\xff\xff\xff" + whole[26:]}, nil},
		"nothing":              {[]string{version}, nil},
		"a part":               {[]string{version, whole[:40]}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			peer, ours := net.Pipe()
			defer peer.Close()
			s := newSocket(ours, time.Minute, 0)
			go func() { _, _ = io.CopyN(io.Discard, peer, int64(len("SSH-2.0-us\r\n"))) }()
			go func() {
				for _, p := range c.pieces {
					_, _ = io.WriteString(peer, p)
				}
			}()
			if got := s.ExchangeVersions("SSH-2.0-us"); !strings.HasPrefix(got, "SSH-2.0-Test") {
				t.Fatal(got)
			}
			wait := 10 * time.Second
			if name == "nothing" || name == "a part" {
				// The peer sends nothing more.
				wait = 20 * time.Millisecond
			}
			if got := s.PeerCiphers(wait); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
			all := strings.Join(c.pieces, "")
			read := make([]byte, len(all))
			if _, err := io.ReadFull(s, read); err != nil || string(read) != all {
				t.Errorf("%v: x/crypto reads %q, and the peer wrote %q", err, read, all)
			}
		})
	}
}

// TestLongListsOfCiphersAreNotSplit: a list of a thousand names costs a stranger's login no memory and no time.
func TestLongListsOfCiphersAreNotSplit(t *testing.T) {
	p := kexInit(strings.Repeat("aaa,", 900)+"aes256-gcm@openssh.com", strings.Repeat("aab,", 900)+"aes256-gcm@openssh.com")
	var ciphers []string
	if n := testing.AllocsPerRun(10, func() { ciphers, _ = offeredCiphers(p) }); n > 2 {
		t.Errorf("%v allocations", n)
	}
	if !slices.Equal(ciphers, []string{"aes256-gcm@openssh.com"}) {
		t.Errorf("%q", ciphers)
	}
}

// FuzzOfferedCiphers: offeredCiphers returns no ciphers of an incomplete packet, and does not panic.
func FuzzOfferedCiphers(f *testing.F) {
	f.Add(kexInit("aes256-ctr", "aes256-ctr"))
	f.Add([]byte{0, 0, 0, 1, 0})
	f.Fuzz(func(t *testing.T, p []byte) {
		if list, complete := offeredCiphers(p); len(list) > 0 && !complete {
			t.Error("a list of a part")
		}
	})
}

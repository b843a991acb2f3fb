package link

import (
	"bytes"
	"encoding/binary"
	"time"
)

// maxKexInit bounds the peer's version line and first packet together, in bytes. The first packet of
// OpenSSH has 1.5 KiB.
const maxKexInit = 8 << 10

// msgKexInit is the number of SSH_MSG_KEXINIT (RFC 4253, section 12).
const msgKexInit = 20

// PeerCiphers reads the peer's first packet before x/crypto does, and returns those of the ciphers in gcm that the
// peer offers for both directions. x/crypto fixes the offer of this side before it reads that packet, so the
// caller can adapt the offer to the peer only by this method. PeerCiphers returns nil if the packet is
// not a KEXINIT. It also returns nil if no packet arrives within the duration wait, because some peers
// send theirs after the first packet of this side. Call PeerCiphers after ExchangeVersions. Most peers
// send version and KEXINIT without waiting, so the call takes half a round trip.
func (s *Socket) PeerCiphers(wait time.Duration) []string {
	end := bytes.IndexByte(s.ahead, '\n')
	if end < 0 {
		return nil
	}
	_ = s.Conn.SetReadDeadline(time.Now().Add(wait))
	defer func() { _ = s.Conn.SetReadDeadline(time.Time{}) }()
	buf := make([]byte, maxKexInit)
	n := copy(buf, s.ahead)
	for {
		s.ahead = buf[:n]
		if ciphers, complete := offeredCiphers(buf[end+1 : n]); complete || n == len(buf) {
			return ciphers
		}
		got, err := s.Conn.Read(buf[n:])
		if got > 0 {
			n += got
			s.loginBytes += got
			s.heard.Store(s.now())
		}
		if err != nil {
			// The deadline has passed, or the next read of x/crypto returns the same error.
			s.ahead = buf[:n]
			return nil
		}
	}
}

// offeredCiphers returns those of the ciphers in gcm that an unencrypted KEXINIT packet (RFC 4253, sections 6 and 7.1)
// lists for both directions. complete is false while bytes of the packet are missing. It splits no list, because a
// stranger may send one of thousands of names.
func offeredCiphers(p []byte) (ciphers []string, complete bool) {
	if len(p) < 5 {
		return nil, false
	}
	length, padding := binary.BigEndian.Uint32(p), int(p[4])
	if length > maxKexInit-4-maxVersion || int(length) < padding+1 {
		return nil, true
	}
	if len(p) < 4+int(length) {
		return nil, false
	}
	p = p[5 : 4+int(length)-padding]
	if len(p) < 17 || p[0] != msgKexInit {
		return nil, true
	}
	p = p[17:]          // skips message number and cookie
	var lists [4][]byte // key exchanges, host keys, ciphers from the peer, ciphers to the peer
	for i := range lists {
		if len(p) < 4 || uint64(len(p)) < 4+uint64(binary.BigEndian.Uint32(p)) {
			return nil, true
		}
		size := int(binary.BigEndian.Uint32(p))
		lists[i], p = p[4:4+size], p[4+size:]
	}
	for _, c := range gcm {
		if listed(lists[2], c) && listed(lists[3], c) {
			ciphers = append(ciphers, c)
		}
	}
	return ciphers, true
}

// listed reports whether a name-list (RFC 4251, section 5) has a name.
func listed(list []byte, name string) bool {
	for n := range bytes.SplitSeq(list, []byte(",")) {
		if string(n) == name {
			return true
		}
	}
	return false
}

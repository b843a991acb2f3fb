package main

import (
	"encoding"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/server/certs"
)

// value is a field of Config: it reads what a person wrote and shows what it
// understood. Its errors say what was expected.
type value interface {
	encoding.TextUnmarshaler
	fmt.Stringer
}

// off is how the absence of a limit is written.
const off = "off"

// Text is a setting without a form of its own.
type Text string

// UnmarshalText takes anything.
func (t *Text) UnmarshalText(b []byte) error { *t = Text(strings.TrimSpace(string(b))); return nil }

func (t *Text) String() string { return string(*t) }

// Addr is a host:port to listen on; empty = off.
type Addr string

// On tells whether there is something to listen on.
func (a Addr) On() bool { return a != "" }

// Loopback tells whether only this machine can reach the address.
func (a Addr) Loopback() bool {
	host, _, _ := net.SplitHostPort(string(a))
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// UnmarshalText reads host:port, :port, or off.
func (a *Addr) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == off {
		*a = ""
		return nil
	}
	_, p, err := net.SplitHostPort(s)
	if _, perr := strconv.ParseUint(p, 10, 16); err != nil || perr != nil {
		return fmt.Errorf("%q is not an address such as 127.0.0.1:8080, :8080 or off", s)
	}
	*a = Addr(s)
	return nil
}

func (a *Addr) String() string {
	if !a.On() {
		return off
	}
	return string(*a)
}

// HostPort is an address that people dial.
type HostPort string

// UnmarshalText reads host:port, or a host, which means port 22.
func (h *HostPort) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == "" {
		*h = ""
		return nil
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		s = net.JoinHostPort(strings.Trim(s, "[]"), "22")
	}
	host, p, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(p, 10, 16)
	if err != nil || perr != nil || n == 0 || host == "" || strings.ContainsAny(host, " /@") {
		return fmt.Errorf("%q is not an address such as relay.example.com:22", string(b))
	}
	*h = HostPort(s)
	return nil
}

func (h *HostPort) String() string { return string(*h) }

// PeerAddr is an address that the other nodes dial; off = they do not.
type PeerAddr string

// UnmarshalText reads host:port, off, or nothing for the default.
func (a *PeerAddr) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	host, p, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(p, 10, 16)
	if s != "" && s != off && (err != nil || perr != nil || n == 0 || host == "") {
		return fmt.Errorf("%q is not an address such as 10.0.0.7:2222, or off", s)
	}
	*a = PeerAddr(s)
	return nil
}

func (a *PeerAddr) String() string { return string(*a) }

// resolve returns the address for a node whose SSH listener listens on ssh: the setting,
// else that of the listener, else its port on the first private address of this machine;
// "" = none. Other nodes could not reach what listens on loopback from elsewhere, but nodes
// on one machine do.
func (a PeerAddr) resolve(ssh string, postgres bool) string {
	switch {
	case a == off || !postgres:
		return ""
	case a != "":
		return string(a)
	}
	host, p, err := net.SplitHostPort(ssh)
	if ip, perr := netip.ParseAddr(host); err != nil || perr == nil && !ip.IsUnspecified() {
		return ssh
	}
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsPrivate() {
			return net.JoinHostPort(n.IP.String(), p)
		}
	}
	return ""
}

// BaseURL is scheme and host of the base site.
type BaseURL string

// UnmarshalText reads http:// or https:// and a host, without path.
func (u *BaseURL) UnmarshalText(b []byte) error {
	s := strings.TrimSuffix(strings.TrimSpace(string(b)), "/")
	if s == "" {
		*u = ""
		return nil
	}
	parsed, err := url.Parse(s)
	if err != nil || parsed.Scheme != "http" && parsed.Scheme != "https" || parsed.Hostname() == "" ||
		parsed.Path != "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return fmt.Errorf("%q is not a base URL such as https://relay.example.com, without a path", s)
	}
	parsed.Host = strings.ToLower(parsed.Host)
	*u = BaseURL(parsed.String())
	return nil
}

func (u *BaseURL) String() string { return string(*u) }

// Domain is a DNS name in lower case, without a dot at its end.
type Domain string

// UnmarshalText reads a DNS name; a leading dot and a trailing one are ignored.
func (d *Domain) UnmarshalText(b []byte) error {
	s := strings.ToLower(strings.Trim(strings.TrimSpace(string(b)), "."))
	for label := range strings.SplitSeq(s, ".") {
		if !relay.ValidLabel(label) {
			return fmt.Errorf("%q is not a domain such as relay.example.com", string(b))
		}
	}
	*d = Domain(s)
	return nil
}

func (d *Domain) String() string { return string(*d) }

// DatabaseURL is a Postgres URL; empty = SQLite.
type DatabaseURL string

// UnmarshalText reads postgres://…; its errors never repeat the text, which may
// hold a password.
func (u *DatabaseURL) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == "" {
		*u = ""
		return nil
	}
	parsed, err := url.Parse(s)
	if err != nil || parsed.Scheme != "postgres" && parsed.Scheme != "postgresql" {
		return errors.New("expected a URL such as postgres://user:password@host:5432/relay, or nothing for SQLite in the data dir")
	}
	*u = DatabaseURL(s)
	return nil
}

// String masks the password, wherever the URL holds it.
func (u *DatabaseURL) String() string {
	parsed, err := url.Parse(string(*u))
	if err != nil || *u == "" {
		return ""
	}
	q := parsed.Query()
	for key := range q {
		if strings.Contains(strings.ToLower(key), "password") {
			q.Set(key, "xxxxx")
			parsed.RawQuery = q.Encode()
		}
	}
	return parsed.Redacted()
}

// Prefixes are networks.
type Prefixes []netip.Prefix

// UnmarshalText reads CIDRs and addresses, separated by commas or white space.
func (p *Prefixes) UnmarshalText(b []byte) error {
	*p = nil
	for _, s := range strings.FieldsFunc(string(b), func(r rune) bool { return r == ',' || r == ' ' || r == '\n' }) {
		prefix, err := netip.ParsePrefix(s)
		if err != nil {
			addr, aerr := netip.ParseAddr(s)
			if aerr != nil {
				return fmt.Errorf("%q is not a network such as 10.0.0.0/8 or 192.0.2.7", s)
			}
			prefix = netip.PrefixFrom(addr, addr.BitLen())
		}
		*p = append(*p, prefix)
	}
	return nil
}

func (p *Prefixes) String() string {
	words := make([]string, len(*p))
	for i, prefix := range *p {
		words[i] = prefix.String()
	}
	return strings.Join(words, ",")
}

// Switch is on or off.
type Switch bool

// UnmarshalText reads on and off, and the words that mean the same.
func (s *Switch) UnmarshalText(b []byte) error {
	switch strings.ToLower(strings.TrimSpace(string(b))) {
	case "on", "true", "yes", "1":
		*s = true
	case off, "false", "no", "0":
		*s = false
	default:
		return fmt.Errorf("%q is neither on nor off", string(b))
	}
	return nil
}

func (s *Switch) String() string {
	if *s {
		return "on"
	}
	return off
}

// TLSMode says where certificates come from.
type TLSMode string

// UnmarshalText reads off, files or acme.
func (m *TLSMode) UnmarshalText(b []byte) error { return oneOf(m, b, off, "files", "acme") }

func (m *TLSMode) String() string { return string(*m) }

// DNSProvider says how records of DNS-01 challenges are set.
type DNSProvider string

// UnmarshalText reads off, rfc2136 or command.
func (p *DNSProvider) UnmarshalText(b []byte) error { return oneOf(p, b, off, "rfc2136", "command") }

func (p *DNSProvider) String() string { return string(*p) }

// TSIGKey signs dynamic updates of DNS.
type TSIGKey struct{ certs.TSIGKey }

// UnmarshalText reads name:algorithm:secret, or nothing.
func (k *TSIGKey) UnmarshalText(b []byte) (err error) {
	*k = TSIGKey{}
	if strings.TrimSpace(string(b)) != "" {
		k.TSIGKey, err = certs.ParseTSIGKey(string(b))
	}
	return err
}

// String masks the secret.
func (k *TSIGKey) String() string {
	if k.Name == "" {
		return ""
	}
	return k.Name + ":" + k.Algorithm + ":xxxxx"
}

// LogFormat is the form of the log.
type LogFormat string

// UnmarshalText reads text or json.
func (f *LogFormat) UnmarshalText(b []byte) error { return oneOf(f, b, "text", "json") }

func (f *LogFormat) String() string { return string(*f) }

// LogLevel is the least level that is logged.
type LogLevel slog.Level

// UnmarshalText reads debug, info, warn or error.
func (l *LogLevel) UnmarshalText(b []byte) error {
	var word string
	if err := oneOf(&word, b, "debug", "info", "warn", "error"); err != nil {
		return err
	}
	return (*slog.Level)(l).UnmarshalText([]byte(word))
}

func (l *LogLevel) String() string { return strings.ToLower(slog.Level(*l).String()) }

// oneOf sets a value to the word that b is.
func oneOf[T ~string](value *T, b []byte, words ...string) error {
	s := strings.ToLower(strings.TrimSpace(string(b)))
	if !slices.Contains(words, s) {
		return fmt.Errorf("%q is not one of %s", string(b), strings.Join(words, ", "))
	}
	*value = T(s)
	return nil
}

// unlimited is how a limit that is off is kept, so that 0 can be told apart.
const unlimited = -1

// Duration is a length of time that limits something.
type Duration time.Duration

// Limit is the duration, 0 when it is off.
func (d Duration) Limit() time.Duration { return time.Duration(max(d, 0)) }

// UnmarshalText reads 90s, 15m, 30d, or off.
func (d *Duration) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == off {
		*d = unlimited
		return nil
	}
	parsed, err := relay.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%w, or off", err)
	}
	*d = Duration(parsed)
	return nil
}

func (d *Duration) String() string {
	if *d == unlimited {
		return off
	}
	return relay.FormatDuration(time.Duration(*d))
}

// Count is a number of things that limits something.
type Count int

// Limit is the number, 0 when it is off.
func (c Count) Limit() int { return int(max(c, 0)) }

// UnmarshalText reads a whole number, or off.
func (c *Count) UnmarshalText(b []byte) error {
	s := strings.TrimSpace(string(b))
	if s == off {
		*c = unlimited
		return nil
	}
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return fmt.Errorf("%q is not a number such as 50, or off", s)
	}
	*c = Count(n)
	return nil
}

func (c *Count) String() string {
	if *c == unlimited {
		return off
	}
	return strconv.Itoa(int(*c))
}

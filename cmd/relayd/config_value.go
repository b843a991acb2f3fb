package main

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"relay"
	"relay/api"
	"relay/server/certs"
	"relay/store/seal"
)

// off is the value that switches off a limit, a listener or another function.
const off = "off"

// kind is a form of values, such as a size or a duration.
type kind struct {
	word  string // name of the value in the help of flags; "" means "text"
	limit bool   // the value may be off, and must not be 0 without the tag zero
	parse func(text string) (any, error)
}

// kinds has every kind of setting, except for those that list their words, such as text|json.
var kinds = map[string]kind{
	"":             {parse: func(s string) (any, error) { return s, nil }},
	"on|off":       {word: "on|off", parse: parseSwitch},
	"addr":         {word: "addr", parse: parseAddr},
	"dial":         {word: "addr", parse: parseDial},
	"peer":         {parse: parsePeer},
	"base-url":     {word: "url", parse: parseBaseURL},
	"database-url": {word: "url", parse: parseDatabaseURL},
	"domain":       {parse: parseDomain},
	"node-name":    {parse: parseNodeName},
	"networks":     {parse: parseNetworks},
	"access-log":   {parse: parseAccessLog},
	"tsig":         {parse: func(s string) (any, error) { return certs.ParseTSIGKey(s) }},
	"secret-keys":  {parse: func(s string) (any, error) { return seal.ParseKeys(s) }},
	"size":         {word: "size", limit: true, parse: parseSize},
	"duration":     {word: "duration", limit: true, parse: parseDuration},
	"count":        {word: "count", limit: true, parse: parseCount},
	"rate":         {word: "rate", limit: true, parse: parseRate},
}

// set parses the text of a setting. An error says which form is expected.
func (s *setting) set(text string) error {
	text = strings.TrimSpace(text)
	if !s.secret && looksSecret(text) {
		return fmt.Errorf("this value looks like a secret, so it is not shown; expected %s", cmp.Or(kinds[s.kind].word, s.help))
	}
	k, known := kinds[s.kind]
	if !known {
		text = strings.ToLower(text)
		if words := strings.Split(s.kind, "|"); !slices.Contains(words, text) {
			return fmt.Errorf("%q is not one of %s", text, strings.Join(words, ", "))
		}
		s.field.SetString(text)
		return nil
	}
	switch {
	case k.limit && text == off && s.zero:
		s.field.SetInt(-1)
		return nil
	case k.limit && text == off, text == "" && s.def == "":
		s.field.SetZero()
		return nil
	}
	v, err := k.parse(text)
	if err != nil {
		return err
	}
	if k.limit && !s.zero && reflect.ValueOf(v).IsZero() {
		return fmt.Errorf("%q would allow nothing; write off for no limit", text)
	}
	s.field.Set(reflect.ValueOf(v))
	return nil
}

// String returns the parsed value as text, without secrets.
func (s *setting) String() string {
	if kinds[s.kind].limit && (s.field.IsZero() && !s.zero || s.field.CanInt() && s.field.Int() < 0) {
		return off
	}
	switch v := s.field.Interface().(type) {
	case bool:
		if v {
			return "on"
		}
		return off
	case int64:
		return formatSize(v)
	case int:
		return strconv.Itoa(v)
	case time.Duration:
		return relay.FormatDuration(v)
	case api.Rate:
		return formatRate(v)
	case []netip.Prefix:
		return networkText(v)
	case []seal.Key:
		return strings.Join(mapSlice(v, seal.Key.ID), ",")
	case certs.TSIGKey:
		if v.Name == "" {
			return ""
		}
		return v.Name + ":" + v.Algorithm + ":" + hidden
	}
	text := s.field.String()
	switch {
	case s.kind == "addr" && text == "":
		return off
	case s.kind == "database-url":
		return maskURL(text)
	}
	return text
}

// parseSwitch reads on or off, or a common synonym.
func parseSwitch(s string) (any, error) {
	switch s = strings.ToLower(s); s {
	case "on", "true", "yes", "1":
		return true, nil
	case off, "false", "no", "0":
		return false, nil
	}
	return nil, fmt.Errorf("%q is neither on nor off", s)
}

// parseAddr reads an address to listen on: host:port, :port, or off, which becomes "".
func parseAddr(s string) (any, error) {
	if s == off {
		return "", nil
	}
	_, p, err := net.SplitHostPort(s)
	if _, perr := strconv.ParseUint(p, 10, 16); err != nil || perr != nil {
		return nil, fmt.Errorf("%q is not an address such as 127.0.0.1:8080, :8080 or off", s)
	}
	return s, nil
}

// canDial reports whether s has a host and a port.
func canDial(s string) bool {
	host, p, err := net.SplitHostPort(s)
	n, perr := strconv.ParseUint(p, 10, 16)
	return err == nil && perr == nil && n > 0 && host != "" && !strings.ContainsAny(host, " /@")
}

// parseDial reads an address that users dial: host:port, or a host, which means port 22.
func parseDial(s string) (any, error) {
	addr := s
	if _, _, err := net.SplitHostPort(s); err != nil {
		addr = net.JoinHostPort(strings.Trim(s, "[]"), "22")
	}
	if !canDial(addr) {
		return nil, fmt.Errorf("%q is not an address such as relay.example.com:22", s)
	}
	return addr, nil
}

// parsePeer reads an address that other nodes dial: host:port, or off.
func parsePeer(s string) (any, error) {
	if s != off && !canDial(s) {
		return nil, fmt.Errorf("%q is not an address such as 10.0.0.7:2222, or off", s)
	}
	return s, nil
}

// parseBaseURL reads http:// or https:// and a host, without path.
func parseBaseURL(text string) (any, error) {
	s := strings.TrimSuffix(text, "/")
	if s == "" {
		return "", nil
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || !isHost(u) ||
		u.Path != "" || u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not a base URL such as https://relay.example.com, without a path", s)
	}
	u.Host = strings.ToLower(u.Host)
	return u.String(), nil
}

// isHost reports whether the host of a URL is an address or a DNS name, with a port or without one.
func isHost(u *url.URL) bool {
	if _, err := netip.ParseAddr(u.Hostname()); err != nil {
		if _, err := parseDomain(u.Hostname()); err != nil {
			return false
		}
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return err == nil && port > 0 || u.Port() == "" && !strings.HasSuffix(u.Host, ":")
}

// parseDomain reads a DNS name; a leading and a trailing dot are ignored.
func parseDomain(text string) (any, error) {
	s := strings.ToLower(strings.Trim(text, "."))
	for label := range strings.SplitSeq(s, ".") {
		if !relay.ValidLabel(label) {
			return nil, fmt.Errorf("%q is not a domain such as relay.example.com", text)
		}
	}
	return s, nil
}

var nodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$`)

// parseNodeName reads a name in the form of a host name or label. It accepts no other characters, because
// other nodes show the name in their lists and logs.
func parseNodeName(s string) (any, error) {
	if !nodeName.MatchString(s) {
		return nil, fmt.Errorf("%q is not a node name: it has up to 63 letters, digits, and inner hyphens, dots and underscores, such as eu-1", s)
	}
	return s, nil
}

// parseNetworks reads CIDRs and addresses, separated by commas or white space.
func parseNetworks(text string) (any, error) {
	var list []netip.Prefix
	for _, s := range words(text) {
		prefix, err := netip.ParsePrefix(s)
		if addr, aerr := netip.ParseAddr(s); aerr == nil {
			prefix, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		if err != nil {
			return nil, fmt.Errorf("%q is not a network such as 10.0.0.0/8 or 192.0.2.7", s)
		}
		list = append(list, prefix)
	}
	return list, nil
}

func networkText(list []netip.Prefix) string {
	return strings.Join(mapSlice(list, netip.Prefix.String), ",")
}

// words splits a list that is separated by commas or white space.
func words(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
}

func parseDuration(s string) (any, error) {
	d, err := relay.ParseDuration(s)
	if err != nil {
		return nil, fmt.Errorf("%w, or off", err)
	}
	return d, nil
}

func parseCount(s string) (any, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is not a number such as 50, or off", s)
	}
	return int(n), nil
}

// parseAccessLog reads off, stdout or the path of a file. The two words may be in any letter case, as those of
// other settings may: OFF must not become the name of a file.
func parseAccessLog(s string) (any, error) {
	if word := strings.ToLower(s); word == off || word == "stdout" {
		return word, nil
	}
	return s, nil
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{
	{"TiB", 1 << 40},
	{"GiB", 1 << 30},
	{"MiB", 1 << 20},
	{"KiB", 1 << 10},
	{"TB", 1e12},
	{"GB", 1e9},
	{"MB", 1e6},
	{"KB", 1e3},
	{"B", 1},
	{"", 1},
}

// parseSize reads a whole number with a unit (KiB = 1024, KB = 1000, letter case ignored). Without a unit,
// the number is in bytes.
func parseSize(s string) (any, error) {
	digits := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
	unit := strings.TrimSpace(s[len(digits):])
	n, err := strconv.ParseInt(digits, 10, 64)
	for _, u := range sizeUnits {
		if err == nil && n >= 0 && strings.EqualFold(unit, u.name) && n <= math.MaxInt64/u.bytes {
			return n * u.bytes, nil
		}
	}
	return nil, fmt.Errorf("%q is not a size such as 128KiB, 32MiB, 5GiB or off", s)
}

// formatSize formats a size with the largest unit that divides it, binary units first.
func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n >= u.bytes && n%u.bytes == 0 && u.bytes > 1 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

var rateUnits = []struct {
	per   time.Duration
	names []string // formatRate uses the first name
}{
	{time.Second, []string{"s", "sec", "second"}},
	{time.Minute, []string{"min", "m", "minute"}},
	{time.Hour, []string{"h", "hour"}},
	{24 * time.Hour, []string{"d", "day"}},
}

// parseRate reads a number, a slash and a unit or duration.
func parseRate(s string) (any, error) {
	count, unit, _ := strings.Cut(s, "/")
	unit = strings.TrimSpace(unit)
	n, err := strconv.ParseUint(strings.TrimSpace(count), 10, 31)
	per, _ := relay.ParseDuration(unit)
	for _, u := range rateUnits {
		if slices.Contains(u.names, strings.ToLower(unit)) {
			per = u.per
		}
	}
	if err != nil || n == 0 || per <= 0 {
		return nil, fmt.Errorf("%q is not a rate such as 60/min, 5/s or off", s)
	}
	return api.Rate{N: int(n), Per: per}, nil
}

func formatRate(r api.Rate) string {
	for _, u := range rateUnits {
		if r.Per == u.per {
			return strconv.Itoa(r.N) + "/" + u.names[0]
		}
	}
	return strconv.Itoa(r.N) + "/" + relay.FormatDuration(r.Per)
}

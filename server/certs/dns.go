package certs

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/libdns/libdns"
	"github.com/miekg/dns"
)

// RFC2136 sets the records of DNS-01 challenges by dynamic updates (RFC 2136) that are signed with a
// TSIG key (RFC 8945), as BIND, Knot and PowerDNS accept them. It implements the interfaces of libdns
// that certmagic uses.
type RFC2136 struct {
	Server string // host:port of the primary server of the zone
	Key    TSIGKey
}

// TSIGKey is a key for signing updates. The zero value signs nothing.
type TSIGKey struct {
	Name, Algorithm string // domain names with a final dot, such as "hmac-sha256."
	Secret          string // base64
}

// ParseTSIGKey reads NAME:ALGORITHM:SECRET; NAME and SECRET are as in nsupdate -y. The error never
// contains the text, which is a secret.
func ParseTSIGKey(text string) (TSIGKey, error) {
	name, rest, _ := strings.Cut(strings.TrimSpace(text), ":")
	algorithm, secret, ok := strings.Cut(rest, ":")
	key := TSIGKey{Name: dns.CanonicalName(name), Algorithm: dns.CanonicalName(algorithm), Secret: secret}
	switch key.Algorithm {
	case dns.HmacSHA1, dns.HmacSHA224, dns.HmacSHA256, dns.HmacSHA384, dns.HmacSHA512:
	default:
		ok = false
	}
	if _, err := base64.StdEncoding.DecodeString(secret); err != nil {
		ok = false
	}
	if !ok || name == "" || secret == "" {
		return TSIGKey{}, errors.New("expected a TSIG key such as relay:hmac-sha256:c2VjcmV0")
	}
	return key, nil
}

// AppendRecords adds records to a zone.
func (p *RFC2136) AppendRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	return records, p.update(ctx, zone, records, (*dns.Msg).Insert)
}

// DeleteRecords removes records from a zone.
func (p *RFC2136) DeleteRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	return records, p.update(ctx, zone, records, (*dns.Msg).Remove)
}

// update sends one update of a zone. The function change puts the records into the message.
func (p *RFC2136) update(ctx context.Context, zone string, records []libdns.Record, change func(*dns.Msg, []dns.RR)) error {
	rrs := make([]dns.RR, len(records))
	for i, record := range records {
		r := record.RR()
		if r.Type != "TXT" {
			return fmt.Errorf("cannot set a record of type %s", r.Type)
		}
		rrs[i] = &dns.TXT{
			Hdr: dns.RR_Header{Name: dns.Fqdn(libdns.AbsoluteName(r.Name, zone)), Rrtype: dns.TypeTXT, Class: dns.ClassINET, Ttl: uint32(r.TTL / time.Second)},
			Txt: []string{r.Data},
		}
	}
	m := new(dns.Msg).SetUpdate(dns.Fqdn(zone))
	change(m, rrs)
	client := &dns.Client{Net: "tcp"}
	if k := p.Key; k.Name != "" {
		m.SetTsig(k.Name, k.Algorithm, 300, time.Now().Unix())
		client.TsigSecret = map[string]string{k.Name: k.Secret}
	}
	answer, _, err := client.ExchangeContext(ctx, m, p.Server)
	if err != nil {
		return fmt.Errorf("update of %s at %s: %w", zone, p.Server, err)
	}
	if answer.Rcode != dns.RcodeSuccess {
		return fmt.Errorf("update of %s at %s: %s", zone, p.Server, dns.RcodeToString[answer.Rcode])
	}
	return nil
}

// DNSCommand sets the records of DNS-01 challenges with an external program: COMMAND add NAME VALUE,
// and COMMAND remove NAME VALUE, for a TXT record. An exit status other than 0 fails the order.
type DNSCommand string

// AppendRecords adds records to a zone.
func (c DNSCommand) AppendRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	return records, c.run(ctx, "add", zone, records)
}

// DeleteRecords removes records from a zone.
func (c DNSCommand) DeleteRecords(ctx context.Context, zone string, records []libdns.Record) ([]libdns.Record, error) {
	return records, c.run(ctx, "remove", zone, records)
}

// commandTime is the longest time of one run of a DNSCommand.
const commandTime = 2 * time.Minute

func (c DNSCommand) run(ctx context.Context, action, zone string, records []libdns.Record) error {
	ctx, cancel := context.WithTimeout(ctx, commandTime)
	defer cancel()
	for _, record := range records {
		name := libdns.AbsoluteName(record.RR().Name, zone)
		cmd := exec.CommandContext(ctx, string(c), action, name, record.RR().Data)
		// The settings of relayd may contain secrets, which the command must not get.
		cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RELAY_") })
		cmd.WaitDelay = time.Second
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s %s: %w: %.500s", string(c), action, name, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

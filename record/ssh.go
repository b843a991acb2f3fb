package record

import "relay"

// SSH says where the SSH side is and how to know that it is the right one.
type SSH struct {
	Addr     string    `json:"addr" doc:"host:port to dial"`
	BaseURL  string    `json:"baseUrl" doc:"dashboard and API"`
	HostKeys []HostKey `json:"hostKeys" nullable:"false" doc:"every key that the server may show"`
}

// HostKey is a public key of the server; type, a space and key are what follows the
// host in a line of known_hosts.
type HostKey struct {
	Type        string `json:"type" doc:"such as ssh-ed25519"`
	Key         string `json:"key" doc:"base64"`
	Fingerprint string `json:"fingerprint" doc:"SHA256:…"`
}

// OfSSH gives the outward form of the SSH side of a site.
func OfSSH(site relay.Site, keys []relay.HostKey) *SSH {
	out := &SSH{Addr: site.SSHAddr, BaseURL: site.URL(""), HostKeys: make([]HostKey, 0, len(keys))}
	for _, k := range keys {
		out.HostKeys = append(out.HostKeys, HostKey{Type: k.Type, Key: k.Key, Fingerprint: k.Fingerprint})
	}
	return out
}

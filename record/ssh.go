package record

import "relay"

// SSH says where the SSH side is and how to know that it is the right one.
type SSH struct {
	Addr     string          `json:"addr" doc:"host:port to dial"`
	BaseURL  string          `json:"baseUrl" doc:"dashboard and API"`
	HostKeys []relay.HostKey `json:"hostKeys" nullable:"false" doc:"every key that the server may show"`
}

// OfSSH gives the outward form of the SSH side of a site.
func OfSSH(site relay.Site, keys []relay.HostKey) *SSH {
	return &SSH{Addr: site.SSHAddr, BaseURL: site.URL(""), HostKeys: append([]relay.HostKey{}, keys...)}
}

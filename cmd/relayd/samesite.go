package main

import (
	"strings"

	"golang.org/x/net/publicsuffix"

	"relay"
)

// Words about a dashboard that browsers take for the same site as the aliases.
const (
	sameSiteReason = "browsers take the dashboard at %s and the aliases below %s for one site, %s: pages that tunnels serve can set cookies there and send requests that carry them, so only the dashboard's own checks stand between"
	sameSiteFix    = "give the aliases a registered domain of their own (--alias-domain), or the dashboard (--base-url)"
)

// sameSite gives the site, in the sense of browsers, that the base host shares with
// the aliases; "" where they are apart. A public suffix is no site: names below it
// are strangers to each other.
func sameSite(site relay.Site) string {
	base, domain := strings.TrimSuffix(site.Base.Hostname(), "."), strings.Trim(site.AliasDomain, ".")
	of, err := publicsuffix.EffectiveTLDPlusOne(strings.ToLower(base))
	if err != nil {
		return ""
	}
	aliases, err := publicsuffix.EffectiveTLDPlusOne("x." + strings.ToLower(domain))
	if err != nil || of != aliases {
		return ""
	}
	return of
}

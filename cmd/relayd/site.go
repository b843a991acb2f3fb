package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/net/publicsuffix"

	"relay"
)

// siteFileName is the file in the data dir with the addresses of the last server. Operator commands read the
// addresses there, because they do not get the flags of the server.
const siteFileName = "site.json"

type siteFile struct {
	BaseURL     string `json:"baseUrl"`
	AliasDomain string `json:"aliasDomain"`
	SSHAddr     string `json:"sshAddr"`     // the address that users dial
	SSHListener string `json:"sshListener"` // "" in the file of an earlier version
	HTTPAddr    string `json:"httpAddr"`    // address of the HTTP listener; "" = off

	// Store names the store of the server, without secrets. Commands compare it with their own store.
	Store storePlace `json:"store"`

	// Settings are the settings that came from files, as `relayd config` prints them, with secrets masked.
	// The files may change after the start of the server.
	Settings map[string]string `json:"settings"`
}

// fileSettings lists the settings that came from the configuration file.
func fileSettings(cfg Config, list []*setting) []settingRow {
	return slices.DeleteFunc(effective(cfg, list), func(row settingRow) bool {
		line := strings.LastIndexByte(row.Origin, ':')
		return line < 0 || strings.HasPrefix(row.Origin, "--") || strings.Trim(row.Origin[line+1:], "0123456789") != ""
	})
}

// loadedSettings returns the settings that the last server of a data dir got from files.
func loadedSettings(dataDir string) (loaded map[string]string, known bool) {
	var file siteFile
	text, err := os.ReadFile(filepath.Join(dataDir, siteFileName))
	if err != nil || json.Unmarshal(text, &file) != nil {
		return nil, false
	}
	return file.Settings, file.Settings != nil
}

// saveSiteFile writes site.json atomically.
func saveSiteFile(cfg Config, site relay.Site, list []*setting) error {
	settings := map[string]string{}
	for _, row := range fileSettings(cfg, list) {
		settings[row.Name] = row.Value
	}
	text, err := json.Marshal(siteFile{
		BaseURL: site.Base.String(), AliasDomain: site.AliasDomain, SSHAddr: site.SSHAddr, SSHListener: cfg.SSHAddr, HTTPAddr: cfg.HTTPAddr,
		Store: placeOf(cfg), Settings: settings,
	})
	if err != nil {
		return err
	}
	path := filepath.Join(cfg.DataDir, siteFileName)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// loadSiteFile reads site.json. It returns false if there is no such file, or if the settings of this command
// name an address.
func loadSiteFile(cfg Config) (siteFile, bool) {
	var known siteFile
	defaults := defaultConfig()
	given := cfg.BaseURL != "" || cfg.HTTPSAddr != "" || cfg.AliasDomain != defaults.AliasDomain ||
		cfg.HTTPAddr != defaults.HTTPAddr && port(cfg.HTTPAddr) != "0"
	text, err := os.ReadFile(filepath.Join(cfg.DataDir, siteFileName))
	if given || err != nil || json.Unmarshal(text, &known) != nil {
		return siteFile{}, false
	}
	return known, true
}

// knownSite returns the site that the last server recorded in site.json, or the site of the settings if
// loadSiteFile returns false.
func knownSite(cfg Config) relay.Site {
	site := cfg.site()
	known, ok := loadSiteFile(cfg)
	if !ok {
		return site
	}
	if base, err := url.Parse(known.BaseURL); err == nil {
		site.Base, site.AliasDomain, site.SSHAddr = *base, known.AliasDomain, known.SSHAddr
	}
	return site
}

// Reason and advice of doctor about a dashboard that browsers treat as the same site as the aliases.
const (
	sameSiteReason = "browsers take the dashboard at %s and the aliases below %s for one site, %s: pages that tunnels serve can set cookies there and send requests that carry them, so only the dashboard's own checks stand between"
	sameSiteFix    = "give the aliases a registered domain of their own (--alias-domain), or the dashboard (--base-url)"
)

// sameSite returns the site that base host and aliases share; "" if browsers treat them as different sites. A
// public suffix is not a site.
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

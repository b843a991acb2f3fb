package main

import (
	"encoding/json"
	"net/url"
	"os"
	"path/filepath"

	"relay"
)

// siteFile keeps where the last server on a data dir was reached, so that operator
// commands beside it print right addresses though they were not given its flags.
const siteFile = "site.json"

type knownAddresses struct {
	BaseURL     string `json:"baseUrl"`
	AliasDomain string `json:"aliasDomain"`
	SSHAddr     string `json:"sshAddr"`
	HTTPAddr    string `json:"httpAddr"`
}

// rememberSite writes the file; whole or not at all.
func rememberSite(cfg Config, site relay.Site, at addresses) error {
	text, err := json.Marshal(knownAddresses{
		BaseURL: site.Base.String(), AliasDomain: site.AliasDomain, SSHAddr: site.SSHAddr, HTTPAddr: at.HTTP,
	})
	if err != nil {
		return err
	}
	path := filepath.Join(string(cfg.DataDir), siteFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// recall reads the file. It counts only where no address was set for this command.
func recall(cfg Config) (knownAddresses, bool) {
	var known knownAddresses
	var defaults Config
	for _, s := range defaults.settings() {
		_ = s.value.UnmarshalText([]byte(s.def))
	}
	given := cfg.BaseURL != "" || cfg.HTTPSAddr != "" || cfg.AliasDomain != defaults.AliasDomain ||
		cfg.HTTPAddr != defaults.HTTPAddr && port(string(cfg.HTTPAddr)) != "0"
	text, err := os.ReadFile(filepath.Join(string(cfg.DataDir), siteFile))
	if given || err != nil || json.Unmarshal(text, &known) != nil {
		return knownAddresses{}, false
	}
	return known, true
}

// knownSite is the site as the running server knows it, or as the settings say.
func knownSite(cfg Config) relay.Site {
	site := cfg.site(cfg.addresses())
	known, ok := recall(cfg)
	if !ok {
		return site
	}
	if base, err := url.Parse(known.BaseURL); err == nil {
		site.Base, site.AliasDomain, site.SSHAddr = *base, known.AliasDomain, known.SSHAddr
	}
	return site
}

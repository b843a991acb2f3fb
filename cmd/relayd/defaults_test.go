package main

import "testing"

// contractDefaults are the documented defaults of all settings, in the form of `relayd config`. A default is
// a promise: change it on purpose, here and in the documentation. A row may exist before its setting, if the
// setting has been announced.
var contractDefaults = map[string]struct {
	value     string
	announced bool
}{
	"http-addr":                   {value: "127.0.0.1:8080"},
	"https-addr":                  {value: "off"},
	"ssh-addr":                    {value: "127.0.0.1:2222"},
	"ssh-public-addr":             {value: ""}, // follows from base host and SSH port; see TestDefaults
	"ssh-host-key":                {value: ""},
	"node-name":                   {value: ""},
	"database-max-conns":          {value: "12"},
	"drain-delay":                 {value: "3s"},
	"peer-addr":                   {value: "", announced: true},
	"admin-addr":                  {value: "127.0.0.1:9091"},
	"pprof":                       {value: "off"},
	"base-url":                    {value: ""}, // is http://localhost:<HTTP port>; see TestDefaults
	"alias-domain":                {value: "localhost"},
	"data-dir":                    {value: "/home/tester/.local/share/relayd"},
	"database-url":                {value: ""},
	"database-direct-url":         {value: ""},
	"acme-dns":                    {value: "off"},
	"acme-dns-server":             {value: ""},
	"acme-dns-key":                {value: ""},
	"secret-key":                  {value: ""},
	"acme-dns-command":            {value: ""},
	"acme-dns-resolvers":          {value: ""},
	"tls":                         {value: "off"},
	"tls-cert":                    {value: ""},
	"tls-key":                     {value: ""},
	"acme-email":                  {value: ""},
	"acme-ca":                     {value: ""},
	"acme-ca-root":                {value: ""},
	"trusted-proxies":             {value: ""},
	"alias-claim":                 {value: "on"},
	"max-aliases":                 {value: "50"},
	"max-head":                    {value: "128KiB"},
	"max-target":                  {value: "16KiB"},
	"max-body":                    {value: "32MiB"},
	"max-response-capture":        {value: "32MiB"},
	"max-alias-storage":           {value: "5GiB"},
	"max-account-storage":         {value: "off"},
	"queue-bytes":                 {value: "1GiB"},
	"max-share-age":               {value: "off"},
	"min-free":                    {value: "1GiB"},
	"spool-limit":                 {value: "256MiB"},
	"head-timeout":                {value: "10s"},
	"idle-timeout":                {value: "1m15s"},
	"stall-timeout":               {value: "30s"},
	"response-timeout":            {value: "1m"},
	"min-rate":                    {value: "1KiB"},
	"min-rate-grace":              {value: "30s"},
	"buffer-limit":                {value: "512MiB", announced: true},
	"max-connections":             {value: "10000"},
	"max-connections-per-source":  {value: "1024"},
	"max-connections-per-account": {value: "256"},
	"ssh-penalties":               {value: "on"},
	"ssh-penalty-exempt":          {value: ""},
	"ping-interval":               {value: "5s"},
	"ping-timeout":                {value: "3s"},
	"stale-close":                 {value: "1m"},
	"drain":                       {value: "15s"},
	"retention":                   {value: "30d"},
	"queue-limit":                 {value: "10000"},
	"max-account-queue":           {value: "off"},
	"replay-limit":                {value: "60/min"},
	"share-replay-limit":          {value: "10/min"},
	"initial-admin-keys":          {value: ""},
	"log-format":                  {value: "text"},
	"log-level":                   {value: "info"},
	"access-log":                  {value: "off"},
	"mcp":                         {value: "on"},
}

func TestEveryDefault(t *testing.T) {
	t.Parallel()
	_, list, err := load(sources{getenv: env()})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, s := range list {
		seen[s.name] = true
		want, known := contractDefaults[s.name]
		if got := s.String(); !known || got != want.value {
			t.Errorf("--%s is %q by default, want %q (listed: %t)", s.name, got, want.value, known)
		}
	}
	for name, want := range contractDefaults {
		if !seen[name] && !want.announced {
			t.Errorf("there is no --%s", name)
		}
	}
}

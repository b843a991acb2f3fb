package main

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/api"
	"relay/server/certs"
	"relay/sockets"
	"relay/store/seal"
)

// Config is every setting of relayd. Each field is a flag, an environment variable RELAY_…, and a key of the
// --config file; docs/config.md is made from the tags of the fields. A Config is built once, by load, and
// passed by value.
//
// Tags: kind (the form of the value: see kinds; none = any text), flag (also the key in the file), default,
// help (one line), note (follows the help in docs/config.md), secret (masked when shown, also read from
// NAME_FILE), file (also read from NAME_FILE, but not secret), zero (the value 0 has a special meaning, or
// another check refuses it), group (heading above it and the settings that follow, in help and
// docs/config.md). A limit that is off has the value 0, or -1 if the tag zero is set.
type Config struct {
	// HTTPAddr is the plain HTTP address of aliases and the base site. It may be "off" if HTTPSAddr is set.
	HTTPAddr string `group:"Addresses" kind:"addr" flag:"http-addr" default:"127.0.0.1:8080" help:"plain HTTP listener (aliases and base site)"`
	// HTTPSAddr may be an address only if the setting TLS is not off.
	HTTPSAddr string `kind:"addr" flag:"https-addr" default:"off" help:"TLS listener (aliases and base site)"`
	// SSHAddr is the address for SSH clients; it cannot be off.
	SSHAddr string `kind:"addr" flag:"ssh-addr" default:"127.0.0.1:2222" help:"SSH listener"`
	// SSHHostKey, if set, must name the same keys on all nodes.
	SSHHostKey string `flag:"ssh-host-key" default:"" help:"private key files of the SSH server, separated by commas; clients learn all, and the first of each type is in use" note:"empty = ssh_host_ed25519_key in the data dir; with Postgres one in the database that all nodes share"`
	// SSHPublicAddr may be empty; the method site then takes the base host and the SSH port.
	SSHPublicAddr string `kind:"dial" flag:"ssh-public-addr" default:"" help:"SSH address to show in printed commands" note:"empty = base host and SSH port; a host without a port means port 22"`
	// AdminAddr is for operators; on loopback it answers only requests with a loopback Host.
	AdminAddr string `kind:"addr" flag:"admin-addr" default:"127.0.0.1:9091" help:"listener for /metrics and /debug/stats, or off"`
	// Pprof omits the page cmdline, because arguments may hold a database password.
	Pprof bool `kind:"on|off" flag:"pprof" default:"off" help:"/debug/pprof/ on the admin listener" note:"without cmdline"`
	// BaseURL may be empty; the method site then takes localhost and the port of the TLS listener, or, without
	// one, of the HTTP listener.
	BaseURL string `kind:"base-url" flag:"base-url" default:"" help:"address of dashboard and API; its host is the base host" note:"empty = http://localhost:<HTTP port>, or https and its port where there is a TLS listener"`
	// AliasDomain is lower-case, without dots at either end.
	AliasDomain string `kind:"domain" flag:"alias-domain" default:"localhost" help:"aliases are <alias>.<domain>; alias URLs take scheme and port of the base URL"`
	// TrustedProxies apply to every listener except the admin listener.
	TrustedProxies []netip.Prefix `kind:"networks" flag:"trusted-proxies" default:"" help:"networks of your proxies (CIDR, separated by commas), which must send a PROXY protocol header (v1 or v2)" note:"on HTTP, TLS and SSH; from all others the header is refused"`

	// DataDir is never empty after load.
	DataDir string `group:"Store" flag:"data-dir" default:"" help:"folder for the SQLite file, host key and certificates" note:"empty = $XDG_DATA_HOME/relayd, else ~/.local/share/relayd"`
	// DatabaseURL may hold a password.
	DatabaseURL string `kind:"database-url" flag:"database-url" default:"" secret:"yes" help:"postgres://… = Postgres; empty = SQLite in the data dir"`
	// DatabaseDirectURL is the URL for migrations and locks; "" means DatabaseURL.
	DatabaseDirectURL string `kind:"database-url" flag:"database-direct-url" default:"" secret:"yes" help:"direct address, for migrations and locks when the database URL goes through a pooler" note:"empty = database-url"`

	// SecretKeys are the keys that encrypt secrets of senders; empty means the key file in the data dir.
	SecretKeys []seal.Key `kind:"secret-keys" flag:"secret-key" default:"" secret:"yes" help:"keys that encrypt the secrets of senders in the store, one a line (relayd secret-key new): the first encrypts, all decrypt" note:"the same on all nodes; empty = secret.key in the data dir, which a single node creates with the first secret"`

	// DatabaseMaxConns counts all connections of this process, except those of a migration.
	DatabaseMaxConns int `kind:"count" flag:"database-max-conns" default:"12" zero:"ok" help:"connections of this node to Postgres, including its heartbeat" note:"at least 6; all nodes together need fewer than max_connections of Postgres"`
	// NodeName is a label; the id of a node is random.
	NodeName string `group:"Several nodes" kind:"node-name" flag:"node-name" default:"" help:"name of this node among those on one Postgres" note:"empty = host name; a second node of the same name gets a number"`
	// PeerAddr is empty for the default, which depends on the address of the SSH listener.
	PeerAddr string `kind:"peer" flag:"peer-addr" default:"" help:"address at which the other nodes reach the SSH listener of this node, or off" note:"empty = the address of the SSH listener, or its port on the first private address. With off, the tunnels of this node serve only requests that arrive at this node; other nodes queue theirs"`

	// TLS selects the source of certificates.
	TLS string `group:"Certificates" kind:"off|files|acme" flag:"tls" default:"off" help:"off, files or acme" note:"changed files are read again; acme accepts the terms of its CA"`
	// TLSCert and TLSKey are PEM files. They are read again after a change.
	TLSCert string `flag:"tls-cert" default:"" help:"PEM file of the certificate chain, for tls files"`
	TLSKey  string `flag:"tls-key" default:"" help:"PEM file of the private key, for tls files"`
	// ACMEEmail, ACMECA and ACMECARoot apply only to TLS = acme.
	ACMEEmail  string `flag:"acme-email" default:"" help:"contact address of the ACME account, for tls acme"`
	ACMECA     string `flag:"acme-ca" default:"" help:"directory URL of the ACME server, for tls acme" note:"empty = Let's Encrypt"`
	ACMECARoot string `flag:"acme-ca-root" default:"" help:"PEM file of the root that signed the ACME server's own certificate" note:"trusted in addition to those of the system"`
	// ACMEDNS and the settings that begin with its name apply only to TLS = acme.
	ACMEDNS          string        `kind:"off|rfc2136|command" flag:"acme-dns" default:"off" help:"off, rfc2136 or command: prove names by DNS-01, and have one wildcard certificate for all aliases" note:"the CA need not reach your server"`
	ACMEDNSServer    string        `flag:"acme-dns-server" default:"" help:"host:port of the DNS server that accepts dynamic updates of the zones, for acme-dns rfc2136"`
	ACMEDNSKey       certs.TSIGKey `kind:"tsig" flag:"acme-dns-key" default:"" secret:"yes" help:"TSIG key that signs the updates: name:algorithm:secret, such as relay:hmac-sha256:c2VjcmV0"`
	ACMEDNSCommand   string        `flag:"acme-dns-command" default:"" help:"program that sets TXT records, for acme-dns command" note:"relayd runs: PROGRAM add NAME VALUE, and PROGRAM remove NAME VALUE"`
	ACMEDNSResolvers string        `flag:"acme-dns-resolvers" default:"" help:"DNS servers to ask for zones and records, host:port, separated by commas" note:"empty = those of the system"`

	// AliasClaim: an account that forwards an unowned name becomes its owner.
	AliasClaim bool `group:"Aliases" kind:"on|off" flag:"alias-claim" default:"on" help:"an account that opens a tunnel for a free, valid name becomes its owner"`
	// MaxAliases is counted per account.
	MaxAliases int `kind:"count" flag:"max-aliases" default:"50" help:"most aliases per account"`

	// MaxHead bounds the heads of requests and of responses.
	MaxHead int64 `group:"Sizes and storage" kind:"size" flag:"max-head" default:"128KiB" help:"longest request or response head (431)"`
	// MaxTarget bounds the request-target.
	MaxTarget int64 `kind:"size" flag:"max-target" default:"16KiB" help:"longest request target (414)"`
	// MaxBody bounds decoded request bodies.
	MaxBody int64 `kind:"size" flag:"max-body" default:"32MiB" help:"largest request body (413)"`
	// MaxResponseCapture bounds the stored bytes of a response body. The caller gets all of it.
	MaxResponseCapture int64 `kind:"size" flag:"max-response-capture" default:"32MiB" help:"largest part of a response body to store; callers always get all of it"`
	// MaxAliasStorage counts the bytes of requests and responses, plus 512 bytes for each of them.
	MaxAliasStorage int64 `kind:"size" flag:"max-alias-storage" default:"5GiB" help:"most stored bytes per alias; beyond it relayd deletes the oldest events that are not shared, pinned or queued" note:"if none can be deleted: 503 storage-full"`
	// MaxAccountStorage counts like MaxAliasStorage, over all aliases of an account. An account may have its
	// own limit.
	MaxAccountStorage int64 `kind:"size" flag:"max-account-storage" default:"off" help:"most stored bytes of all aliases of an account; beyond it relayd deletes the oldest events that are not shared, pinned or queued" note:"if none can be deleted: 503 storage-full; relayd user set NAME max-account-storage=SIZE sets it for one account"`
	// QueueBytes is counted per alias.
	QueueBytes int64 `kind:"size" flag:"queue-bytes" default:"1GiB" help:"most queued request bytes per alias (503 queue-full)"`
	// MinFree applies to the disk of a SQLite store; 0 means off.
	MinFree int64 `kind:"size" flag:"min-free" default:"1GiB" zero:"ok" help:"free space to keep on the data disk; with less, callers get 503 storage-full" note:"checked each second; relayd cannot see the disk of Postgres"`
	// SpoolLimit applies only to Postgres, because a SQLite store needs no spool.
	SpoolLimit int64 `kind:"size" flag:"spool-limit" default:"256MiB" help:"largest spool in the data dir while Postgres is down; when full, or off: 503 store-unavailable"`

	// HeadTimeout runs from the first byte of a request.
	HeadTimeout time.Duration `group:"Time and memory for callers" kind:"duration" flag:"head-timeout" default:"10s" help:"how long a request head may take, from its first byte (408)"`
	// IdleTimeout applies to a caller's open connection between two requests.
	IdleTimeout time.Duration `kind:"duration" flag:"idle-timeout" default:"75s" help:"how long to keep a connection open without a byte"`
	// StallTimeout applies to both directions of a caller's connection.
	StallTimeout time.Duration `kind:"duration" flag:"stall-timeout" default:"30s" help:"how long a caller may pause while it sends its body (408) or reads (closed)" note:"a caller that reads 512 KiB within this time stays connected"`
	// MinRate is an average over the time that relayd has waited for the body.
	MinRate int64 `kind:"size" flag:"min-rate" default:"1KiB" help:"lowest average bytes a second of a caller's body after min-rate-grace (408)"`
	// MinRateGrace is how long a body may be slower than MinRate.
	MinRateGrace time.Duration `kind:"duration" flag:"min-rate-grace" default:"30s" help:"how long a body may be slower than min-rate" note:"off = min-rate never applies"`
	// ResponseTimeout can be set for each alias, too.
	ResponseTimeout time.Duration `kind:"duration" flag:"response-timeout" default:"60s" help:"how long to wait for the head of the local server's response (504)"`
	// BufferLimit bounds the memory for bytes that wait for slow readers.
	BufferLimit int64 `kind:"size" flag:"buffer-limit" default:"512MiB" help:"most bytes to hold in memory for slow readers (503 overloaded)" note:"an account may hold a quarter; each response to a slow caller counts 2.25 MiB, and a body in progress beyond 16 KiB counts up to 256 KiB"`
	// MaxConnections, MaxConnectionsPerSource and MaxConnectionsPerAccount count SSH
	// connections. A source is one IPv4 address or one IPv6 /64.
	MaxConnections           int `group:"SSH clients and tunnels" kind:"count" flag:"max-connections" default:"10000" help:"most SSH connections"`
	MaxConnectionsPerSource  int `kind:"count" flag:"max-connections-per-source" default:"1024" help:"most SSH connections from one source" note:"a source is one IPv4 address or one IPv6 /64; loopback and trusted-proxies have no limit of their own"`
	MaxConnectionsPerAccount int `kind:"count" flag:"max-connections-per-account" default:"256" help:"most SSH connections of one account"`
	// SSHPenalties: a source of failed logins is rejected for a while.
	SSHPenalties bool `kind:"on|off" flag:"ssh-penalties" default:"on" help:"reject a source for a while after failed SSH logins" note:"like OpenSSH's PerSourcePenalties; never for loopback and trusted-proxies"`
	// SSHPenaltyExempt are sources that never get a penalty.
	SSHPenaltyExempt []netip.Prefix `kind:"networks" flag:"ssh-penalty-exempt" default:"" help:"networks that never get a penalty (CIDR, separated by commas)" note:"for addresses that many users share: NAT, a container bridge, a cluster"`
	// PingInterval, PingTimeout and StaleClose decide when a silent tunnel is stale or closed. The first two
	// cannot be off, because without pings relayd would not notice that a client has vanished.
	PingInterval time.Duration `kind:"duration" flag:"ping-interval" default:"5s" zero:"ok" help:"how often to ping a silent tunnel" note:"cannot be off"`
	PingTimeout  time.Duration `kind:"duration" flag:"ping-timeout" default:"3s" zero:"ok" help:"how long to wait for the answer to a ping; then the tunnel is stale and its alias offline" note:"cannot be off"`
	StaleClose   time.Duration `kind:"duration" flag:"stale-close" default:"60s" help:"how long a stale tunnel is kept before it is closed"`
	// Drain of 0 cuts requests at once; off waits without a limit.
	Drain time.Duration `group:"Stop" kind:"duration" flag:"drain" default:"15s" zero:"ok" help:"longest graceful stop" note:"0s = cut at once"`

	// DrainDelay applies by default only if there are other nodes, because the callers of a single node have no
	// other place to go.
	DrainDelay time.Duration `kind:"duration" flag:"drain-delay" default:"3s" zero:"ok" help:"how long /readyz answers 503 at a stop before the listeners close, so that balancers notice" note:"the default applies only while other nodes serve the same Postgres; a value that you set always applies"`

	// Retention can be set for each alias, too.
	Retention time.Duration `group:"Retention, queue and replays" kind:"duration" flag:"retention" default:"30d" help:"age at which events are deleted; queued, shared and pinned ones stay" note:"deletion is at most 5s or 1 % of it late; an alias may have its own"`
	// QueueLimit is counted per alias.
	QueueLimit int `kind:"count" flag:"queue-limit" default:"10000" help:"most queued attempts per alias (503 queue-full)"`
	// MaxAccountQueue counts like QueueLimit, over all aliases of an account. An account may have its own
	// limit.
	MaxAccountQueue int `kind:"count" flag:"max-account-queue" default:"off" help:"most queued attempts of all aliases of an account (503 queue-full)" note:"relayd user set NAME max-account-queue=COUNT sets it for one account"`
	// ReplayLimit is counted per token or session.
	ReplayLimit api.Rate `kind:"rate" flag:"replay-limit" default:"60/min" help:"most replays per token or session (429)"`
	// MaxShareAge applies to shares that are created after it was set.
	MaxShareAge time.Duration `kind:"duration" flag:"max-share-age" default:"off" help:"longest life of a share" note:"a share asked for longer, or without end, expires then"`
	// ShareReplayLimit is counted per share token.
	ShareReplayLimit api.Rate `kind:"rate" flag:"share-replay-limit" default:"10/min" help:"most replays per share token (429)"`

	// InitialAdminKeys is used while the store holds no admin.
	InitialAdminKeys string `group:"First start" flag:"initial-admin-keys" default:"" file:"yes" help:"authorized_keys text or file of the account admin, created on first start" note:"used at each start while there is no admin"`

	// LogFormat and LogLevel apply to the log on stderr.
	LogFormat string `group:"Log" kind:"text|json" flag:"log-format" default:"text" help:"text or json"`
	LogLevel  string `kind:"debug|info|warn|error" flag:"log-level" default:"info" help:"debug, info, warn or error"`
	// AccessLog lines contain no query, header or body.
	AccessLog string `kind:"access-log" flag:"access-log" default:"off" help:"write one JSON line for each request to an alias host, also refused ones: off, stdout or a file" note:"SIGUSR1 opens the file again"`
	// MCP serves agents on the base host.
	MCP bool `group:"Agents" kind:"on|off" flag:"mcp" default:"on" help:"serve coding agents at /mcp of the base host, with an API token"`

	// drainDelayGiven means that DrainDelay is not the default but was set, so it also applies to a single node.
	drainDelayGiven bool
}

// setting is one field of Config together with its texts and the source of its value.
type setting struct {
	kind, name, def, help, note string
	group                       string // the heading above the setting in help and docs/config.md, never empty
	secret, file, zero          bool
	field                       reflect.Value
	origin                      string // such as "default", "--drain", "RELAY_DRAIN", "relay.yaml:3"
}

func (s *setting) env() string {
	return "RELAY_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// location returns the name of a setting in messages: its flag, variable or line of the file.
func (s *setting) location() string {
	switch {
	case s.origin == "default":
		return "--" + s.name
	case strings.HasPrefix(s.origin, "--"), strings.HasPrefix(s.origin, "RELAY_"):
		return s.origin
	}
	return s.origin + ": " + s.name
}

// settings lists the fields of c in their order; setting a value changes c.
func (c *Config) settings() []*setting {
	v := reflect.ValueOf(c).Elem()
	var list []*setting
	for i, tagged := range taggedFields() {
		if tagged.name == "" {
			continue // this field is not a setting
		}
		tagged.field = v.Field(i)
		list = append(list, &tagged)
	}
	return list
}

// taggedFields returns for each field of Config what its tags say, without the field itself. A field without a
// tag gets a setting without a name. Each command of relayd has a flag for each setting, so the tags are read
// only once.
var taggedFields = sync.OnceValue(func() []setting {
	fields := make([]setting, reflect.TypeFor[Config]().NumField())
	group := ""
	for i := range fields {
		tag := reflect.TypeFor[Config]().Field(i).Tag
		group = cmp.Or(tag.Get("group"), group)
		fields[i] = setting{
			group: group,
			kind:  tag.Get("kind"), name: tag.Get("flag"), def: tag.Get("default"), help: tag.Get("help"), note: tag.Get("note"),
			secret: tag.Get("secret") != "", file: tag.Get("file") != "", zero: tag.Get("zero") != "",
			origin: "default",
		}
	}
	return fields
})

// named returns the setting with a name, or nil.
func named(list []*setting, name string) *setting {
	if i := slices.IndexFunc(list, func(s *setting) bool { return s.name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// loopback reports whether all open listeners listen on loopback only.
func (c *Config) loopback() bool {
	for _, addr := range []string{c.HTTPAddr, c.HTTPSAddr, c.SSHAddr, c.AdminAddr} {
		if addr != "" && !isLoopback(addr) {
			return false
		}
	}
	return true
}

// isLoopback reports whether only this machine can reach an address.
func isLoopback(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	return sockets.IsLoopback(host)
}

// site returns the public addresses of the server.
func (c *Config) site() relay.Site {
	base, err := url.Parse(c.BaseURL)
	if err != nil || c.BaseURL == "" {
		scheme, p, usual := "http", port(c.HTTPAddr), "80"
		if c.HTTPSAddr != "" {
			scheme, p, usual = "https", port(c.HTTPSAddr), "443"
		}
		base = &url.URL{Scheme: scheme, Host: "localhost"}
		if p != usual {
			base.Host = net.JoinHostPort("localhost", p)
		}
	}
	dial := cmp.Or(c.SSHPublicAddr, net.JoinHostPort(base.Hostname(), port(c.SSHAddr)))
	return relay.Site{Base: *base, AliasDomain: c.AliasDomain, SSHAddr: dial, Loopback: c.loopback()}
}

// port returns the port of an address from parseAddr; "0" if the listener is off.
func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	n, _ := strconv.ParseUint(p, 10, 16)
	return strconv.FormatUint(n, 10)
}

// peerAddr returns the address at which other nodes reach this node: the setting, else the address of the SSH
// listener, else the port of that listener on the first private address of this machine; "" = none. It may be
// a loopback address, which only nodes on the same machine can reach.
func (c *Config) peerAddr() string {
	switch {
	case c.PeerAddr == off || c.DatabaseURL == "":
		return ""
	case c.PeerAddr != "":
		return c.PeerAddr
	}
	host, p, err := net.SplitHostPort(c.SSHAddr)
	if ip, perr := netip.ParseAddr(host); err != nil || perr == nil && !ip.IsUnspecified() {
		return c.SSHAddr
	}
	addrs, _ := net.InterfaceAddrs()
	for _, addr := range addrs {
		if n, ok := addr.(*net.IPNet); ok && n.IP.IsPrivate() {
			return net.JoinHostPort(n.IP.String(), p)
		}
	}
	return ""
}

package main

import (
	"net"
	"net/url"
	"reflect"
	"strconv"
	"strings"

	"relay"
)

// Config is every setting of relayd. Each field is a flag, an environment variable
// RELAY_…, and a key of the --config file; docs/config.md is made from its tags.
// It is built once, by load, and passed by value.
//
// Tags: flag (also the key in the file), default, help (one line), note (added to it in
// docs/config.md), secret (masked when shown, also read from NAME_FILE), file (also read
// from NAME_FILE, but not secret), zero (0 is allowed and has a meaning of its own).
type Config struct {
	// HTTPAddr takes callers of aliases and the base site. Off needs HTTPSAddr.
	HTTPAddr Addr `flag:"http-addr" default:"127.0.0.1:8080" help:"plain HTTP listener (aliases and base site)"`
	// HTTPSAddr needs TLS other than off.
	HTTPSAddr Addr `flag:"https-addr" default:"off" help:"TLS listener (aliases and base site)"`
	// SSHAddr is where tunnels come in; it cannot be off.
	SSHAddr Addr `flag:"ssh-addr" default:"127.0.0.1:2222" help:"SSH listener"`
	// SSHHostKey is the same on all nodes.
	SSHHostKey Text `flag:"ssh-host-key" default:"" help:"private key files of the SSH server, separated by commas; all are announced, the first of each type is in use" note:"empty = ssh_host_ed25519_key in the data dir; with Postgres one in the database that all nodes share"`
	// SSHPublicAddr is empty until Site fills it from the base host and the SSH port.
	SSHPublicAddr HostPort `flag:"ssh-public-addr" default:"" help:"what printed commands tell people to dial" note:"empty = base host and SSH port; a host without a port means port 22"`
	// AdminAddr is for operators; on loopback it answers loopback Host values only.
	AdminAddr Addr `flag:"admin-addr" default:"127.0.0.1:9091" help:"listener for /metrics and /debug/stats, or off"`
	// Pprof has no cmdline page: arguments may hold a database password.
	Pprof Switch `flag:"pprof" default:"off" help:"/debug/pprof/ on the admin listener" note:"without cmdline"`
	// BaseURL is empty until Site fills it from the HTTP port.
	BaseURL BaseURL `flag:"base-url" default:"" help:"address of dashboard and API; its host is the base host" note:"empty = http://localhost:<HTTP port>, or https and its port where there is a TLS listener"`
	// AliasDomain is lower-case, without dots at either end.
	AliasDomain Domain `flag:"alias-domain" default:"localhost" help:"aliases are <alias>.<domain>; alias URLs take scheme and port of the base URL"`

	// DataDir is never empty after load.
	DataDir Text `flag:"data-dir" default:"" help:"folder of SQLite file, host key and certificates" note:"empty = $XDG_DATA_HOME/relayd, else ~/.local/share/relayd"`
	// DatabaseURL may hold a password.
	DatabaseURL DatabaseURL `flag:"database-url" default:"" secret:"yes" help:"postgres://… = Postgres; empty = SQLite in the data dir"`
	// DatabaseDirectURL is DatabaseURL where it is empty.
	DatabaseDirectURL DatabaseURL `flag:"database-direct-url" default:"" secret:"yes" help:"for migrations and locks when the database URL goes through a pooler" note:"empty = database-url"`

	// DatabaseMaxConns counts every connection of this process but those of a migration.
	DatabaseMaxConns Count `flag:"database-max-conns" default:"12" help:"connections of this node to Postgres, that of its heartbeat included" note:"6 at least; the nodes together need fewer than max_connections of Postgres"`
	// NodeName is a label; the id of a node is random.
	NodeName Text `flag:"node-name" default:"" help:"name of this node among those on one Postgres" note:"empty = host name; a second living node of one name gets a number"`
	// PeerAddr is empty for the default, which needs the address of the SSH listener.
	PeerAddr PeerAddr `flag:"peer-addr" default:"" help:"where the other nodes on one Postgres reach the SSH listener of this node, or off" note:"empty = the address of the SSH listener, or its port on the first private address; with off the tunnels of this node serve only requests that arrive here, and others are queued"`

	// TLS says where certificates come from.
	TLS TLSMode `flag:"tls" default:"off" help:"off, files or acme" note:"files are read again when they change; acme gets certificates by itself, which accepts the terms of its CA"`
	// TLSCert and TLSKey are PEM files, read again when they change.
	TLSCert Text `flag:"tls-cert" default:"" help:"PEM file of the certificate chain, for tls files"`
	TLSKey  Text `flag:"tls-key" default:"" help:"PEM file of the private key, for tls files"`
	// ACMEEmail, ACMECA and ACMECARoot are for tls acme only.
	ACMEEmail  Text `flag:"acme-email" default:"" help:"contact address of the ACME account, for tls acme"`
	ACMECA     Text `flag:"acme-ca" default:"" help:"directory URL of the ACME server, for tls acme" note:"empty = Let's Encrypt"`
	ACMECARoot Text `flag:"acme-ca-root" default:"" help:"PEM file of the root that signed the ACME server's own certificate" note:"trusted beside those of the system"`
	// ACMEDNS and the settings with its name are for tls acme only.
	ACMEDNS          DNSProvider `flag:"acme-dns" default:"off" help:"off, rfc2136 or command: prove names by DNS-01, and have one wildcard certificate for all aliases" note:"nothing has to be reachable from the CA"`
	ACMEDNSServer    Text        `flag:"acme-dns-server" default:"" help:"host:port of the DNS server that takes dynamic updates of the zones, for acme-dns rfc2136"`
	ACMEDNSKey       TSIGKey     `flag:"acme-dns-key" default:"" secret:"yes" help:"TSIG key that signs the updates: name:algorithm:secret, such as relay:hmac-sha256:c2VjcmV0"`
	ACMEDNSCommand   Text        `flag:"acme-dns-command" default:"" help:"program that sets TXT records, for acme-dns command" note:"it is run as: PROGRAM add NAME VALUE, and PROGRAM remove NAME VALUE"`
	ACMEDNSResolvers Text        `flag:"acme-dns-resolvers" default:"" help:"DNS servers that are asked for zones and records, host:port, separated by commas" note:"empty = those of the system"`
	// TrustedProxies are for every listener but that for operators.
	TrustedProxies Prefixes `flag:"trusted-proxies" default:"" help:"CIDRs whose PROXY protocol header (v1 or v2) is believed, separated by commas" note:"from these it is demanded, on HTTP, TLS and SSH; from others it is refused"`

	// AliasClaim makes an account that forwards a free name its owner.
	AliasClaim Switch `flag:"alias-claim" default:"on" help:"an account that forwards a free, valid alias name becomes its owner"`
	// MaxAliases is counted per account.
	MaxAliases Count `flag:"max-aliases" default:"50" help:"aliases per account"`

	// MaxHead bounds request heads and response heads alike.
	MaxHead Size `flag:"max-head" default:"128KiB" help:"longest request or response head (431)"`
	// MaxTarget bounds the request-target.
	MaxTarget Size `flag:"max-target" default:"16KiB" help:"longest request target (414)"`
	// MaxBody bounds decoded request bodies.
	MaxBody Size `flag:"max-body" default:"32MiB" help:"largest request body (413)"`
	// MaxResponseCapture bounds what is stored, not what the caller gets.
	MaxResponseCapture Size `flag:"max-response-capture" default:"32MiB" help:"as much of a response body is stored; all of it goes to the caller"`
	// MaxAliasStorage counts requests, responses and 512 bytes for each of them.
	MaxAliasStorage Size `flag:"max-alias-storage" default:"5GiB" help:"stored bytes per alias; the oldest events that are neither shared, pinned nor queued go first" note:"where none can go: 503 storage-full"`
	// QueueBytes is counted per alias.
	QueueBytes Size `flag:"queue-bytes" default:"1GiB" help:"queued request bytes per alias (503 queue-full)"`
	// MinFree is for the disk of a SQLite store; 0 is the same as off.
	MinFree Size `flag:"min-free" default:"1GiB" zero:"ok" help:"less free space on the data disk: 503 storage-full" note:"looked at each second; with Postgres its disk is not seen from here"`
	// SpoolLimit is for Postgres only: a SQLite store is on the same disk.
	SpoolLimit Size `flag:"spool-limit" default:"256MiB" help:"spool in the data dir for a Postgres that is down; full, or off: 503 store-unavailable"`

	// HeadTimeout runs from the first byte of a request.
	HeadTimeout Duration `flag:"head-timeout" default:"10s" help:"head of a request complete, from its first byte (408)"`
	// IdleTimeout is for kept connections between two requests.
	IdleTimeout Duration `flag:"idle-timeout" default:"75s" help:"kept connection without a byte: closed silently"`
	// StallTimeout is for both directions of a caller's connection.
	StallTimeout Duration `flag:"stall-timeout" default:"30s" help:"a caller that sends no byte of its body, or does not read (408, or closed)" note:"a caller that reads 512 KiB within this time is never cut"`
	// MinRate is an average over the time in which the relay waited for the body.
	MinRate Size `flag:"min-rate" default:"1KiB" help:"bytes a second of a caller's body, on average after min-rate-grace; slower is 408"`
	// MinRateGrace is how long a body may come slower than MinRate.
	MinRateGrace Duration `flag:"min-rate-grace" default:"30s" help:"time before min-rate applies to a body" note:"off = min-rate never applies"`
	// ResponseTimeout may be overruled by an alias.
	ResponseTimeout Duration `flag:"response-timeout" default:"60s" help:"first byte of the local response (504)"`
	// BufferLimit bounds memory for what peers sent and nobody took yet.
	BufferLimit Size `flag:"buffer-limit" default:"512MiB" help:"bytes held in all for what peers sent and nobody took yet (503 overloaded)" note:"an account may hold a quarter; each answer that its caller takes too slowly counts 2.25 MiB, and a body under way beyond 16 KiB counts up to 256 KiB"`
	// MaxConnections, MaxConnectionsPerSource and MaxConnectionsPerAccount count SSH
	// connections. A source is one IPv4 address or one IPv6 /64.
	MaxConnections           Count `flag:"max-connections" default:"10000" help:"SSH connections in all"`
	MaxConnectionsPerSource  Count `flag:"max-connections-per-source" default:"1024" help:"SSH connections of one source" note:"a source is one IPv4 address or one IPv6 /64; loopback and trusted-proxies have no limit of their own"`
	MaxConnectionsPerAccount Count `flag:"max-connections-per-account" default:"256" help:"SSH connections of one account"`
	// SSHPenalties keep sources of failed logins out for a while.
	SSHPenalties Switch `flag:"ssh-penalties" default:"on" help:"a source with failed SSH logins is kept out for a while" note:"as OpenSSH's PerSourcePenalties; never for loopback and trusted-proxies"`
	// SSHPenaltyExempt never get a penalty.
	SSHPenaltyExempt Prefixes `flag:"ssh-penalty-exempt" default:"" help:"CIDRs that never get a penalty, separated by commas" note:"for addresses behind which many people sit: NAT, a container bridge, a cluster"`
	// PingInterval, PingTimeout and StaleClose are the liveness of tunnels. The
	// first two cannot be off: a vanished peer would never be noticed.
	PingInterval Duration `flag:"ping-interval" default:"5s" help:"a silent tunnel is asked for a sign of life this often" note:"cannot be off"`
	PingTimeout  Duration `flag:"ping-timeout" default:"3s" help:"no sign within this: the tunnel is stale and its alias offline" note:"cannot be off"`
	StaleClose   Duration `flag:"stale-close" default:"60s" help:"a stale tunnel is closed after this"`
	// Drain of 0 cuts at once, off waits for ever.
	Drain Duration `flag:"drain" default:"15s" zero:"ok" help:"longest graceful stop" note:"0s = cut at once"`

	// DrainDelay without a setting is for nodes that have others beside them: a single one
	// has nowhere to send its callers.
	DrainDelay Duration `flag:"drain-delay" default:"3s" zero:"ok" help:"at a stop, /readyz is 503 this long before the listeners close, so that balancers notice" note:"the default applies only while other nodes serve the same Postgres; a value that is set always does"`

	// Retention may be overruled by an alias.
	Retention Duration `flag:"retention" default:"30d" help:"age at which events go; queued, shared and pinned ones stay" note:"at most 5s or a hundredth of it late; an alias may have its own"`
	// QueueLimit is counted per alias.
	QueueLimit Count `flag:"queue-limit" default:"10000" help:"queued attempts per alias (503 queue-full)"`
	// ReplayLimit is counted per token or session.
	ReplayLimit Rate `flag:"replay-limit" default:"60/min" help:"replays per token or session (429)"`
	// ShareReplayLimit is counted per share token.
	ShareReplayLimit Rate `flag:"share-replay-limit" default:"10/min" help:"replays per share token (429)"`

	// InitialAdminKeys is used while the store holds no admin.
	InitialAdminKeys Text `flag:"initial-admin-keys" default:"" file:"yes" help:"authorized_keys text or file: account admin on first start" note:"made at a start while there is no admin"`

	// LogFormat and LogLevel are of the log on stderr.
	LogFormat LogFormat `flag:"log-format" default:"text" help:"text or json"`
	LogLevel  LogLevel  `flag:"log-level" default:"info" help:"debug, info, warn or error"`
	// AccessLog has no query, no header and no body.
	AccessLog Text `flag:"access-log" default:"off" help:"one JSON line for each request to an alias: off, stdout or a file" note:"SIGUSR1 opens the file again"`

	// drainDelayGiven is set where DrainDelay is not the default.
	drainDelayGiven bool
}

// setting is one field of Config together with its texts and where its value came
// from.
type setting struct {
	name, def, help, note string
	secret, file, zero    bool
	value                 value
	origin                string // such as "default", "--drain", "RELAY_DRAIN", "relay.yaml:3"
}

func (s *setting) env() string {
	return "RELAY_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settings lists the fields of c in their order; setting a value changes c.
func (c *Config) settings() []*setting {
	v := reflect.ValueOf(c).Elem()
	var list []*setting
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		if tag == "" {
			continue // follows from the others
		}
		list = append(list, &setting{
			name: tag.Get("flag"), def: tag.Get("default"), help: tag.Get("help"), note: tag.Get("note"),
			secret: tag.Get("secret") != "", file: tag.Get("file") != "", zero: tag.Get("zero") != "",
			value: v.Field(i).Addr().Interface().(value), origin: "default",
		})
	}
	return list
}

// loopback tells whether every listener that is on listens on loopback only.
func (c *Config) loopback() bool {
	for _, a := range []Addr{c.HTTPAddr, c.HTTPSAddr, c.SSHAddr, c.AdminAddr} {
		if a.On() && !a.Loopback() {
			return false
		}
	}
	return true
}

// addresses are those that listen. They differ from the settings where a port was
// left to the system.
type addresses struct{ HTTP, HTTPS, SSH, Admin string }

func (c *Config) addresses() addresses {
	return addresses{HTTP: string(c.HTTPAddr), HTTPS: string(c.HTTPSAddr), SSH: string(c.SSHAddr), Admin: string(c.AdminAddr)}
}

// site says where the relay is reached.
func (c *Config) site(at addresses) relay.Site {
	base, err := url.Parse(string(c.BaseURL))
	switch {
	case err == nil && c.BaseURL != "":
	case at.HTTPS != "":
		base = localURL("https", port(at.HTTPS), "443")
	default:
		base = localURL("http", port(at.HTTP), "80")
	}
	dial := string(c.SSHPublicAddr)
	if dial == "" {
		dial = net.JoinHostPort(base.Hostname(), port(at.SSH))
	}
	return relay.Site{Base: *base, AliasDomain: string(c.AliasDomain), SSHAddr: dial, Loopback: c.loopback()}
}

func localURL(scheme, port, usual string) *url.URL {
	if port == usual {
		return &url.URL{Scheme: scheme, Host: "localhost"}
	}
	return &url.URL{Scheme: scheme, Host: net.JoinHostPort("localhost", port)}
}

func port(addr string) string {
	_, p, err := net.SplitHostPort(addr)
	if err != nil {
		return "0"
	}
	if n, err := net.LookupPort("tcp", p); err == nil {
		return strconv.Itoa(n)
	}
	return p
}

// minRate is MinRate, or 0 (off) where its grace never ends.
func (c *Config) minRate() int64 {
	if c.MinRateGrace == unlimited {
		return 0
	}
	return c.MinRate.Limit()
}

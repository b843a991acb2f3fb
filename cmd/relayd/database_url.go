package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"relay/store/seal"
)

// hidden replaces a secret in printed text.
const hidden = "xxxxx"

// errDatabaseURL never repeats the URL, because any part of it may be a piece of a password.
var errDatabaseURL = errors.New("expected a URL such as postgres://user:password@host:5432/relay, or nothing for SQLite in the data dir; " +
	"within user, password, database and parameters, @ is written %40, / %2F, : %3A, ? %3F, # %23, & %26, % %25 and a space %20")

var (
	databaseHosts = regexp.MustCompile(`^[A-Za-z0-9._:,\[\]-]*$`)
	databaseName  = regexp.MustCompile(`^/?[^/@:]*$`) // as it is written, with its escapes
	parameterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_.]*$`)
)

// parseDatabaseURL checks a postgres:// URL and returns it unchanged. It refuses URLs in which a special
// character of the password is not escaped: url.Parse would take part of the password for the host, the
// database or a parameter, and relayd prints these.
func parseDatabaseURL(text string) (any, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") ||
		strings.Contains(text, "#") || !databaseHosts.MatchString(u.Host) || !databaseName.MatchString(u.EscapedPath()) {
		return nil, errDatabaseURL
	}
	var given []string
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		if pair == "" {
			continue
		}
		name, value, ok := strings.Cut(pair, "=")
		_, err := url.QueryUnescape(value)
		if !ok || !parameterName.MatchString(name) || strings.Contains(value, "@") || err != nil {
			return nil, errDatabaseURL
		}
		given = append(given, name)
	}
	q := u.Query()
	for _, name := range given {
		rule := parameterRules[name]
		switch {
		case rule.refused != "" && (rule.only == "" || slices.Contains(strings.Fields(rule.only), q.Get(name))):
			return nil, fmt.Errorf("leave the parameter %s=%s out: %s", name, cmp.Or(rule.only, "…"), rule.refused)
		case !rule.known && !driverParameters[name] && q.Has("password"): // the unknown name may be the part of a password after a &
			return nil, errDatabaseURL
		}
	}
	return text, nil
}

// parameterRule says how to treat a URL parameter that the driver does not know: leave it out, translate it by
// the function as, or refuse it. The driver would send such a parameter to Postgres as a session setting, and
// Postgres refuses unknown settings.
type parameterRule struct {
	known   bool
	refused string // why the parameter must not be dropped silently; "" = it may be dropped
	only    string // the values that are refused; "" = all
	as      func(value string) (name, to string)
}

// ignored are parameters of other drivers, pools and libraries; relayd leaves them out.
var ignored = strings.Fields(`channel_binding gssencmode gssdelegation gsslib krbsrvname pgbouncer connection_limit pool_timeout socket_timeout
	statement_cache_size statement_cache_capacity prepared_statement_cache_queries prepareThreshold preparedStatementCacheQueries
	prepared_statements prepare prepared uselibpqcompat sslcompression sslcertmode supa pool pool_mode pool_size pool_max_conns
	pool_min_conns pool_max_conn_lifetime pool_max_conn_idle_time pool_health_check_period default_query_exec_mode
	max min idle_timeout idleTimeoutMillis max_connections connectTimeout connection_timeout loginTimeout socketTimeout tcpKeepAlive
	keepalives keepalives_idle keepalives_interval keepalives_count tcp_user_timeout replication_timeout
	sslpassword sslkeylogfile serverVersion charset encoding reconnect targetServerType workaround schema currentSchema ssl ApplicationName`)

// driverParameters are the parameters that the driver knows, and common session settings.
var driverParameters = func() map[string]bool {
	known := map[string]bool{}
	for _, name := range strings.Fields(`host hostaddr port dbname user password passfile options application_name fallback_application_name
		sslmode sslnegotiation sslcert sslkey sslrootcert sslsni ssl_min_protocol_version ssl_max_protocol_version sslinline krbspn
		connect_timeout binary_parameters disable_prepared_binary_result client_encoding datestyle tz geqo target_session_attrs
		load_balance_hosts min_protocol_version max_protocol_version service
		search_path timezone TimeZone statement_timeout lock_timeout idle_in_transaction_session_timeout work_mem`) {
		known[name] = true
	}
	return known
}()

// parameterRules has the rule of every parameter that is left out, translated or refused.
var parameterRules = func() map[string]parameterRule {
	rules := map[string]parameterRule{}
	for _, name := range ignored {
		rules[name] = parameterRule{known: true}
	}
	// change adds the rule for the parameter name: it is renamed to the string to. A value that is a key of
	// values is replaced; any other value stays.
	change := func(name, to string, values map[string]string) {
		rules[name] = parameterRule{known: true, as: func(value string) (string, string) {
			if as, ok := values[strings.ToLower(value)]; ok {
				return to, as
			}
			return to, value
		}}
	}
	change("sslmode", "sslmode", map[string]string{"no-verify": "require"})
	change("ssl", "sslmode", map[string]string{"true": "require", "1": "require", "false": "disable", "0": "disable", "no-verify": "require"})
	change("sslaccept", "sslmode", map[string]string{"strict": "verify-full", "accept_invalid_certs": "require"}) // a parameter of Prisma
	change("schema", "search_path", nil)
	change("currentSchema", "search_path", nil)
	change("ApplicationName", "application_name", nil)
	const unsupported = "relayd cannot keep what it demands"
	rules["gssencmode"] = parameterRule{known: true, refused: unsupported, only: "require"}
	for _, name := range []string{"require_auth", "requirepeer", "sslcrl", "sslcrldir"} {
		rules[name] = parameterRule{known: true, refused: unsupported}
	}
	return rules
}()

// connectionURL returns a URL that parseDatabaseURL has accepted, in the form that the driver understands. It
// also returns the names of the parameters that were left out.
func connectionURL(text string) (address string, left []string) {
	u, err := url.Parse(text)
	if err != nil || text == "" {
		return text, nil
	}
	q := u.Query()
	for _, name := range slices.Sorted(maps.Keys(q)) {
		rule := parameterRules[name]
		if !rule.known {
			continue
		}
		value := q.Get(name)
		q.Del(name)
		if rule.as == nil {
			left = append(left, name)
		} else if to, as := rule.as(value); to == "sslmode" {
			q.Set(to, stricter(as, q.Get(to)))
		} else if to != "search_path" || as != "public" { // public is in the default search path
			q.Set(to, as)
		}
	}
	u.RawQuery = q.Encode()
	return u.String(), left
}

// stricter returns the stricter of two values of sslmode, because one parameter must not weaken another. An
// unknown value is returned, so the driver refuses it.
func stricter(one, other string) string {
	modes := strings.Fields(`disable allow prefer require verify-ca verify-full`)
	if at := slices.Index(modes, one); other == "" || at < 0 || at >= slices.Index(modes, other) && slices.Contains(modes, other) {
		return one
	}
	return other
}

// maskURL returns the form for output of a URL that parseDatabaseURL has accepted: without the password, and
// without the values of parameters that may hold a secret.
func maskURL(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return hidden
	}
	q := u.Query()
	for name := range q {
		if !driverParameters[name] && !parameterRules[name].known || name == "password" || name == "sslpassword" || name == "options" || name == "sslkey" {
			q.Set(name, hidden)
		}
	}
	u.RawQuery = q.Encode()
	return u.Redacted()
}

// secretsOf returns the secrets in settings, in each spelling that an error could repeat.
func secretsOf(cfg Config) []string {
	list := append(mapSlice(cfg.SecretKeys, seal.Key.Text), cfg.ACMEDNSKey.Secret)
	for _, text := range []string{cfg.DatabaseURL, cfg.DatabaseDirectURL} {
		u, err := url.Parse(text)
		if err != nil {
			continue
		}
		password, _ := u.User.Password()
		_, escaped, _ := strings.Cut(u.User.String(), ":")
		raw, _, _ := strings.Cut(text, "?")
		raw = raw[:max(strings.LastIndex(raw, "@"), 0)] // the part before the @, as written
		_, raw, _ = strings.Cut(raw[strings.Index(raw, "//")+1:], ":")
		list = append(list, password, escaped, raw)
		for name, values := range u.Query() {
			if strings.Contains(strings.ToLower(name), "password") {
				list = append(list, values...)
			}
		}
	}
	slices.SortFunc(list, func(a, b string) int { return len(b) - len(a) }) // longest first, because a secret may be part of another
	return slices.DeleteFunc(slices.Compact(list), func(s string) bool { return s == "" })
}

// secretText matches text that may hold a secret: the address of a database, user information in
// another address, a password in the form of libpq, a private key, a key of --secret-key, an API token.
var secretText = regexp.MustCompile(`(?is)postgres(ql)?:|://.*@|\b(pass|password|passwd|pwd)\s*=|private key|rsk1_|\brly_[\w-]{16}`)

// looksSecret reports whether a text may contain a secret.
func looksSecret(text string) bool { return secretText.MatchString(text) }

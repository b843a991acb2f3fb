package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/lib/pq"

	"relay"
	"relay/cli"
	"relay/record"
	"relay/sockets"
)

// storePlace names the store of a relayd: a data dir or a database. It holds no secret.
type storePlace struct {
	Engine string   `json:"engine"` // sqlite or postgres; "" = not known
	Places []string `json:"places"` // host and database of each address of one Postgres; with SQLite the file
}

// placeOf returns the store that the settings name.
func placeOf(cfg Config) storePlace {
	if cfg.DatabaseURL == "" {
		return storePlace{"sqlite", []string{filepath.Join(cfg.DataDir, databaseFile)}}
	}
	return storePlace{"postgres", slices.Compact([]string{databasePlace(cfg.DatabaseURL), databasePlace(cfg.DatabaseDirectURL)})}
}

// databaseFile is the file of SQLite in the data dir.
const databaseFile = "relay.db"

// databasePlace returns the hosts, the database and the schema of a database URL in a normal form. Like the
// driver, it takes missing parts from variables such as PGHOST. It returns "" for an
// address that the driver refuses.
func databasePlace(address string) string {
	address, _ = connectionURL(address)
	cfg, err := pq.NewConfig(address)
	if err != nil {
		return ""
	}
	var hosts []string
	for _, at := range append([]pq.ConfigMultihost{{Host: cfg.Host, Hostaddr: cfg.Hostaddr, Port: cfg.Port}}, cfg.Multi...) {
		host := at.Host // a host may also be the folder of a Unix socket
		if !filepath.IsAbs(host) {
			host = strings.ToLower(host)
		}
		if at.Hostaddr.IsValid() {
			host = at.Hostaddr.String()
		}
		if sockets.IsLoopback(host) {
			host = "localhost"
		}
		hosts = append(hosts, net.JoinHostPort(host, strconv.Itoa(int(at.Port))))
	}
	place := strings.Join(hosts, ",") + "/" + cmp.Or(cfg.Database, cfg.User)
	if schema := searchPath(cfg); schema != "" {
		place += ", schema " + schema
	}
	return place
}

// searchPathOption matches a search_path in the parameter options of a database URL.
var searchPathOption = regexp.MustCompile(`(?:-c\s*|--)search[_-]path=((?:\\.|\S)*)`)

// searchPath returns the schemas in which a connection looks for tables; "" = the default of the role.
func searchPath(cfg pq.Config) string {
	schema := cfg.Runtime["search_path"]
	if m := searchPathOption.FindAllStringSubmatch(cfg.Options, -1); schema == "" && m != nil {
		schema = m[len(m)-1][1]
	}
	schema = strings.NewReplacer(" ", "", `"`, "", `\`, "").Replace(schema)
	if schema == "public" || schema == "$user,public" {
		return ""
	}
	return record.SafeTextMax(schema, 80)
}

func (p storePlace) String() string { return p.Engine + " " + strings.Join(p.Places, " or ") }

// same reports whether two places name the same store. Two places of SQLite always do: both are in the same
// data dir, whose path may have changed.
func (p storePlace) same(other storePlace) bool {
	return p.Engine == other.Engine && (p.Engine == "sqlite" ||
		slices.ContainsFunc(p.Places, func(place string) bool { return slices.Contains(other.Places, place) }))
}

// servedPlace returns the store that the last server of a data dir used.
func servedPlace(dataDir string) (place storePlace, known bool) {
	var file siteFile
	text, err := os.ReadFile(filepath.Join(dataDir, siteFileName))
	if err != nil || json.Unmarshal(text, &file) != nil {
		return storePlace{}, false
	}
	return file.Store, file.Store.Engine != ""
}

// checkServedStore returns an error if the settings name another store than the server of the data dir uses.
// The settings differ, for example, if only the unit of the service names the database. A command without
// that setting would change an old SQLite file, without any effect on the server.
func checkServedStore(cfg Config) error {
	served, known := servedPlace(cfg.DataDir)
	mine := placeOf(cfg)
	if !known || served.same(mine) || slices.Contains(mine.Places, "") { // "" = the driver refuses the address; when the store is opened, its error says why
		return nil
	}
	missing := "give this command the same --database-url (RELAY_DATABASE_URL, or RELAY_DATABASE_URL_FILE with the path of a file), and the same variables such as PGHOST"
	if served.Engine == "sqlite" {
		missing = "leave out --database-url (RELAY_DATABASE_URL)"
	}
	return cli.Errorf(cli.ExitFailure, "the server of %s keeps its data in %s, and this command would work on %s",
		cfg.DataDir, served, mine).WithHint("%s; if the server is to serve the other one from now on, start it so once", missing)
}

// noteUnknownStore returns a warning for a command that uses the SQLite file of a data dir, if no server has
// recorded its store there: site.json was deleted or is of an earlier version. "" = the store is recorded, or
// a setting names a database.
func noteUnknownStore(cfg Config) string {
	if _, known := servedPlace(cfg.DataDir); known || cfg.DatabaseURL != "" {
		return ""
	}
	return fmt.Sprintf("%s does not say which store the server of this data dir uses; this command works on %s. If the server uses Postgres, pass --database-url (RELAY_DATABASE_URL)",
		filepath.Join(cfg.DataDir, siteFileName), placeOf(cfg))
}

// noteDefaultStore returns a warning for a command that uses the SQLite file in the default data dir only
// because no setting names a store, although no server runs there. The server may use another store, which is
// named by flags in its systemd unit. "" = no warning.
func noteDefaultStore(cfg Config, list []*setting, served func() (bool, error)) string {
	if cfg.DatabaseURL != "" || named(list, "data-dir").origin != "default" {
		return ""
	}
	if runs, err := served(); runs || err != nil {
		return ""
	}
	return fmt.Sprintf("no server runs on %s, on which this command works. If yours runs, give this command its settings: --data-dir, --config or --database-url", placeOf(cfg))
}

// noteOtherStore compares the store of a starting server with the store of the last server of its data dir. If
// they differ, the setting for the store may be missing: the result note says so, and the result fix says how to
// serve the former store again. Both are "" if the stores are the same or the former store is unknown.
func noteOtherStore(cfg Config) (note, fix string) {
	served, known := servedPlace(cfg.DataDir)
	mine := placeOf(cfg)
	if !known || served.same(mine) {
		return "", ""
	}
	fix = "if it is to serve the former one, stop it and give it the setting --database-url of then"
	if served.Engine == "sqlite" {
		fix = "if it is to serve the former one, stop it and leave out --database-url (RELAY_DATABASE_URL)"
	}
	return fmt.Sprintf("the last server of this data dir kept its data in %s, and this one serves %s", served, mine), fix
}

// errNotServed is the reason of the finding of checkWhichStore.
const errNotServed = "a relay answers on this machine, and no server has this store: it has another one, or a data dir that was moved away while it ran. What operator commands change here, it does not see"

// unusedDatabase returns the SQLite file in the data dir that no server uses; "" = none.
func unusedDatabase(cfg Config) string {
	file := filepath.Join(cfg.DataDir, databaseFile)
	if _, err := os.Stat(file); cfg.DatabaseURL == "" || err != nil {
		return ""
	}
	return file
}

// checkWhichStore reports whether the running server uses the store of the settings.
func (x *examination) checkWhichStore() {
	if x.answers && !x.served {
		x.add(finding("served store", relay.VerdictFail,
			"if that server is to have this store, stop it and start it again; else give relayd doctor its settings (--config, --database-url, --data-dir)", errNotServed))
	}
	if file := unusedDatabase(x.cfg); file != "" {
		x.add(finding("unused store", relay.VerdictWarn,
			"move it away once nobody needs what is in it", "%s of SQLite is there, and the store is %s", file, placeOf(x.cfg)))
	}
}

// hintOf returns the text of a usage error with its hint, for a finding.
func hintOf(err error) (reason, fix string) {
	var e *cli.Error
	if errors.As(err, &e) {
		return e.Error(), e.Hint
	}
	return fmt.Sprint(err), ""
}

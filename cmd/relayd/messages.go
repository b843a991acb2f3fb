package main

import (
	"errors"
	"fmt"
	"strings"

	"relay"
)

// Texts for people, except the help of flags and the findings of doctor. Messages go to
// stderr, in lower case and without a full stop; stdout is for data.

const (
	rootLong = `relayd gives code on your machine a permanent public URL, keeps every request sent
to it, and sends any of them again, byte for byte.`

	rootExample = `  relayd serve --data-dir .relay
  relayd user add alice --key alice.pub
  relayd token add --user alice`

	hintHelp        = "run `%s --help` for what it takes"
	hintMeant       = "did you mean %s?"
	hintDataDir     = "start one with `relayd serve`, or pass --data-dir DIR"
	unknownCommand  = "%s has no command %q"
	needsSubcommand = "%s needs one of %s"
	missingArgument = "missing %s"
	extraArgument   = "%q is more than is needed"
	meantFlag       = "%w; did you mean --%s?"
	missingFlag     = "missing --%s"
	badAssignment   = "%q is not key=value, such as offlineStatus=503 or autoDeliver=on"

	portTaken     = "%s cannot listen on %s: another program uses that port; is another relayd running? choose another with --%s"
	portForbidden = "%s cannot listen on %s: ports below 1024 need more rights; choose another with --%s"
	portOther     = "%s cannot listen on %s: %w"
	drainRanOut   = "the time to stop in order ran out after %s: requests were cut and are kept as interrupted"
	onlyNode      = "with SQLite there is one relayd; to stop it, end its process (%s is not changed)"
	stillTunnels  = "%s still has %d tunnels after %s; it goes on sending them away"
	noHealthPort  = "the configured HTTP port is 0, so there is no fixed address to ask; pass --http-addr"
	noHealth      = "no relayd answers at %s (%v); start it with `relayd serve`, or pass the --http-addr or --data-dir of the one that runs"
	unhealthy     = "GET %s answered %d; the log of that relayd says why"
	noAdminLeft   = "no admin is left; make one with `relayd user add NAME --admin`"

	nameTaken   = "the alias %s is there already and belongs to %s; `relayd alias transfer %[1]s --user NAME` gives it to another account"
	nameKeptFor = "the name %s is kept for %s until %s, because an alias of that name was removed; `relayd alias add %[1]s --user %[2]s` makes it anew, empty, and `relayd alias transfer %[1]s --user NAME` hands it on"
	nameKept    = "the name %s is kept until %s, because an alias of that name was removed, and so was the account that had it; choose another name until then"

	databaseAway    = "%w; start Postgres there, or correct --database-url (RELAY_DATABASE_URL)"
	databaseRefuses = "%w; correct user, password or database name of --database-url (RELAY_DATABASE_URL)"
)

// printError prints an error to stderr, one line for each thing that is wrong.
func (c *cli) printError(err error) {
	for line := range strings.SplitSeq(userMessage(err), "\n") {
		fmt.Fprintf(c.stderr, "relayd: %s\n", line)
	}
	var usage *usageError
	if errors.As(err, &usage) && usage.hint != "" {
		fmt.Fprintf(c.stderr, "relayd: %s\n", usage.hint)
	}
}

// report prints talk to stderr.
func (c *cli) report(format string, args ...any) {
	fmt.Fprintf(c.stderr, "relayd: "+format+"\n", args...)
}

// userMessage is an error as an operator reads it: without codes, causes included.
func userMessage(err error) string {
	var e *relay.Error
	if !errors.As(err, &e) || e.Detail == "" {
		return err.Error()
	}
	text := strings.Replace(err.Error(), e.Error(), e.Detail, 1)
	if e.Cause != nil && e.Code != relay.CodeConflict { // there it only tells conflicts apart
		text += ": " + e.Cause.Error()
	}
	return text
}

// explainNotFound replaces a not-found error by a message that names what was not found.
func explainNotFound(err error, format string, args ...any) error {
	if errors.Is(err, relay.ErrNotFound) {
		return fmt.Errorf(format, args...)
	}
	return err
}

const (
	noTunnel  = "there is no tunnel %s; `relayd tunnel list` shows them"
	noAccount = "there is no account %s; `relayd user list` shows them"
	noNode    = "no node named %s lives; `relayd node list` shows them"
	noAlias   = "there is no alias %s; `relayd alias list` shows them"
	noToken   = "there is no token %s; `relayd token list` shows their ids"
	noKey     = "there is no key %s; `relayd key list` shows their fingerprints"
)

// summary is what a start prints on stdout. Commands stand at the start of a line,
// so that they can be taken from there.
type summary struct {
	Store, HTTP, SSH, HostKey string
	First                     bool
	Admin                     string // "" = no account
	NoAdmin                   bool   // there are accounts, and none is an admin
	Fingerprints              []string
	KeyFile                   string // the pair that was made here; "" = the person's own
	LoginLink                 string // first start only
	Commands                  string // lines to try; each is complete and works as it is printed
}

func (s *summary) String() string {
	var b strings.Builder
	row := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "  %-10s %s\n", name, fmt.Sprintf(format, args...))
	}
	row("store", "%s", s.Store)
	switch {
	case s.NoAdmin:
		row("admin", noAdminLeft)
	case s.Admin != "":
		row("admin", "%s", s.Admin)
	}
	for _, f := range s.Fingerprints {
		row("key", "%s", f)
	}
	if s.KeyFile != "" && s.First {
		row("", "made for you: %s", s.KeyFile)
	}
	if s.LoginLink != "" {
		row("dashboard", "%s  (one use, 15 minutes)", s.LoginLink)
	} else {
		row("dashboard", "%s", s.HTTP)
	}
	row("ssh", "%s  host key %s", s.SSH, s.HostKey)
	return b.String() + s.Commands
}

const referenceHead = `# Settings of relayd

Made by ` + "`relayd config --markdown`" + ` (` + "`make generate`" + `); a test compares it.

A setting is taken from its flag, else from its environment variable, else from the YAML file given by ` + "`--config`" + `
(` + "`RELAY_CONFIG`" + `), whose keys are the flag names without the dashes, else from its default. An empty variable counts as not set.
Where ` + "`NAME_FILE`" + ` is listed, it is the path of a file that holds the value; set only one of the two. Where neither is set,
a secret is read from the systemd credential of its name (` + "`LoadCredential=database-url:…`" + `). Without ` + "`--config`" + `, and unless something else
says where the store is, ` + "`/etc/relayd/relayd.yaml`" + ` of the packaged service is used, if you may read it. An unknown key, or a
value that cannot be understood, is an error that says where it stands and what was expected. ` + "`relayd config`" + ` prints
each effective value with its origin, passwords masked.

| kind | is written |
|---|---|
| size | whole number with ` + "`KiB MiB GiB TiB`" + ` (powers of 1024), ` + "`KB MB GB TB`" + ` (powers of 1000), or bytes |
| duration | ` + "`90s`, `15m`, `12h`, `30d`, `1h30m`" + ` |
| rate | ` + "`60/min`, `5/s`, `1000/h`" + ` |
| switch | ` + "`on` or `off`" + ` |
| address | ` + "`127.0.0.1:8080`, `:8080`" + ` (all interfaces) |
| list | separated by commas; in the file a YAML list too |

Sizes, durations, counts and rates that limit something take ` + "`off`" + ` for no limit.

`

// manualEnd ends the manual page of relayd.
const manualEnd = `.SH EXIT STATUS
.TP
.B 0
Success; for serve, a graceful stop.
.TP
.B 1
Failure; for serve also a stop in which requests were cut.
.TP
.B 2
Wrong usage.
.SH FILES
.TP
.I /etc/relayd/relayd.yaml
Settings of the packaged service.
.TP
.I /var/lib/relayd
Data of the packaged service: events, host key, spool, certificates.
.SH ENVIRONMENT
Each setting is read from its flag, else from RELAY_ and its name in capitals, else from the file of
\-\-config or RELAY_CONFIG. relayd config prints the values in force and where each comes from.
`

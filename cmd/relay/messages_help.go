package main

// Help texts of the commands except relay up.
const (
	helpShort = "show the help of a command"

	tunnelGroup  = "Tunnel:"
	eventsGroup  = "Aliases and events:"
	accountGroup = "Account:"
	programGroup = "This program:"

	aliasesExample = "  relay aliases\n  relay aliases --json"
	eventsExample  = "  relay events stripe-dev -n 50\n  relay events stripe-dev -f --json\n  relay events stripe-dev status:5xx type:invoice.* data.object.id=pi_1"
	showExample    = "  relay show evt_01k...\n  relay show evt_01k... --json"
	replayExample  = "  relay replay evt_01k..."
	queuedExample  = "  relay replay-queued stripe-dev"
	whoamiExample  = "  relay whoami\n  relay whoami --json"
	logoutExample  = "  relay logout\n  relay logout --key"
	doctorExample  = "  relay doctor\n  relay doctor stripe-dev --port 3000"
	checkExample   = "  relay config check\n  relay config check --config ci/webhooks.yaml"

	diffShort = "show what changed between two attempts, or two events"
	diffLong  = `Show what changed between the responses of two attempts, such as evt_01k.../1 and
evt_01k.../2, or between the requests of two events.`
	diffExample = `  relay diff evt_01k.../1 evt_01k.../2
  relay diff evt_01k... evt_01m... --json`
	flagPart = "`PART` to compare: request or response (default: response if an attempt is named, else request)"

	markShort = "pin, label or annotate an event"
	markLong  = `Pin an event, which keeps it from retention, give it a label to find it by (label:bug-17),
or a note. An empty label or note removes it. Only the owner of the alias can.`
	markExample = `  relay mark evt_01k... --pinned --label bug-17
  relay mark evt_01k... --note "the customer has no name"
  relay mark evt_01k... --pinned=false --label ""`
	flagPinned = "keep the event from retention; --pinned=false ends that"
	flagLabel  = "`TEXT` to find the event by"
	flagNote   = "`TEXT` of a note"
	needsMark  = "relay mark needs --pinned, --label or --note"

	shareShort = "create a link that can replay an event"
	shareLong  = `Create a link with which anybody can replay one event to your tunnel, without an account.
The link is shown once. You can revoke it in the dashboard.`
	shareExample = `  relay share evt_01k...
  relay share evt_01k... --expires 1h --view`
	flagExpires = "`DURATION` until the link expires, such as 12h or 7d, or never"
	flagView    = "also let it show headers and body, with secrets masked"

	exportShort = "export an event as a command, a record or a test that sends the exact bytes"
	exportLong  = `Export an event: curl is a shell command that sends it again, har and json are records,
and go, js and python are tests that send the exact bytes.`
	exportExample = `  relay export evt_01k...
  relay export evt_01k... --format go > webhook_test.go`
	flagFormat     = "`FORMAT`: curl, har, json, go, js or python"
	flagExportJSON = "print the export as a JSON string"

	eventsLong = `List the newest events of an alias, the newest last.
` + filterHelp
	filterHelp = `Filters are flags, or words after the alias: status:5xx, type:invoice.*, a field of the JSON
body of the request such as data.object.id=pi_1, and text to search for. Write
'"Exact Text"' to respect letter case. All of them have to hold.`
	hintFilter = "relay events --help lists the filters"

	waitShort = "wait for the next event of an alias"
	waitLong  = `Wait for the next event of an alias, print it when it has ended, and exit 0; exit 1 if none
arrives in time. Start it before the action that causes the event.
` + filterHelp
	waitExample = `  relay wait stripe-dev --path /hook --timeout 30s --json
  relay wait stripe-dev status:2xx data.object.id=pi_1`
	flagTimeout = "`DURATION` to wait, at most 1h"

	loginShort = "log in to a relay: register a key, pin the host key, store a token"
	loginLong  = `Log in to the relay whose dashboard is at URL, which also tells its SSH address and host
key. You approve your SSH key in the browser, unless it is registered already; with
--with-token a token from stdin registers it. If you have no key, one is made. The token is
stored in a file that only you can read, and expires when it was not used for 90 days.
Commands use the API from then on.`
	loginExample = `  relay login https://relay.example.com
  relay login https://relay.example.com --with-token < token`
	flagWithToken = "read an API token from stdin instead of approving the key in the browser"
	flagLoginJSON = "print JSON, including link and code, one object per line"
	flagNoBrowser = "do not open a browser; show the link only"
	flagTokenName = "`TEXT` that names token and key in the dashboard (default: relay on this host)"

	logoutShort   = "revoke the token that the login made, and remove the login"
	logoutLong    = "Revoke the token of the login at this relay and remove the login. A token passed by\n--with-token stays valid. The SSH key still logs in."
	flagLogoutKey = "also remove the SSH key from the account"

	doctorShort = "check everything between a local server and the relay"
	doctorLong  = `Check config, logins, name resolution, port, host key, login, aliases, local servers and clock,
without changing anything. Each line has a verdict (ok, warn, fail, skip), the check, the reason,
and what to do. The output contains no secrets. Exit 1 when a check fails.`
	flagDoctorPort = "`PORT` of the local server of the named aliases"
	flagJSONList   = "print a JSON list"

	completionShort   = "print the completion script of a shell"
	completionLong    = "Print the completion script of bash, zsh, fish or powershell. It completes alias names, too."
	completionExample = `  relay completion bash > ~/.local/share/bash-completion/completions/relay
  relay completion zsh > "${fpath[1]}/_relay"
  relay completion fish > ~/.config/fish/completions/relay.fish`
	manShort = "write the manual pages to a directory"
)

// manExits is the part of the manual about exit codes and environment.
const manExits = `.SH EXIT STATUS
.TP
.B 0
Success.
.TP
.B 1
Failure.
.TP
.B 2
Wrong usage.
.TP
.B 3
The login was refused, or the host key is not the known one.
.TP
.B 4
Not found.
.TP
.B 5
The alias was taken over, or is not yours.
.TP
.B 69
The relay is unreachable.
.TP
.B 130
Interrupted; relay up exits with 0.
.SH ENVIRONMENT
.TP
.B RELAY_SERVER
SSH address HOST:PORT of the relay.
.TP
.B RELAY_TOKEN
API token; commands then use the API.
.TP
.B RELAY_URL
Address of the dashboard and API.
.TP
.B NO_COLOR
If set, no colors are used.
`

package main

// Help texts of the commands except relay up.
const (
	helpShort = "show the help of a command"

	tunnelGroup  = "Tunnel:"
	eventsGroup  = "Aliases and events:"
	accountGroup = "Account:"
	programGroup = "This program:"

	aliasesExample = "  relay aliases\n  relay aliases --json"
	eventsExample  = "  relay events stripe-dev -n 50\n  relay events stripe-dev -f --json"
	showExample    = "  relay show evt_01k...\n  relay show evt_01k... --json"
	replayExample  = "  relay replay evt_01k..."
	queuedExample  = "  relay replay-queued stripe-dev"
	whoamiExample  = "  relay whoami\n  relay whoami --json"
	logoutExample  = "  relay logout\n  relay logout --key"
	doctorExample  = "  relay doctor\n  relay doctor stripe-dev --port 3000"
	checkExample   = "  relay config check\n  relay config check --config ci/webhooks.yaml"

	shareShort = "make a link by which anybody may replay an event"
	shareLong  = `Make a link by which anybody may replay one event to your tunnel, without an account.
The link is shown once. It can be revoked in the dashboard.`
	shareExample = `  relay share evt_01k...
  relay share evt_01k... --expires 1h --view`
	flagExpires = "`DURATION` for which it works, such as 12h or 7d, or never"
	flagView    = "its holder may also see headers and body, secrets masked"

	exportShort = "write an event as a command, a record or a test that sends the exact bytes"
	exportLong  = `Write an event in another form: curl is a shell command that sends it again, har and
json are records, and go, js and python are tests that send the exact bytes.`
	exportExample = `  relay export evt_01k...
  relay export evt_01k... --format go > webhook_test.go`
	flagFormat     = "`FORMAT`: curl, har, json, go, js or python"
	flagExportJSON = "print the export as a text within JSON"

	waitShort = "wait for the next event of an alias"
	waitLong  = `Wait for the first event of an alias that arrives from now on, print it once it has ended,
and exit 0; exit 1 when none came in time. Start it before what causes the event.`
	waitExample = `  relay wait stripe-dev --path /hook --timeout 30s --json
  relay wait stripe-dev --method POST`
	flagPath    = "what the path has to start with: a `PREFIX` such as /hook, or hook for short"
	flagMethod  = "`METHOD` it has to have"
	flagTimeout = "`DURATION` to wait, at most 1h"

	loginShort = "log in to a relay: register a key, pin the host key, store a token"
	loginLong  = `Log in to the relay whose dashboard is at URL. Its SSH address and host key are taken from
there. Your SSH key is then approved by you in the browser, unless it is registered
already; with --with-token a token from stdin registers it. Who has no key gets one. The
token is stored for this person only, and commands go over the API from then on.`
	loginExample = `  relay login https://relay.example.com
  relay login https://relay.example.com --with-token < token`
	flagWithToken = "read an API token from stdin instead of asking for approval in the browser"
	flagLoginJSON = "print JSON, the link and code too, one object a line"
	flagNoBrowser = "do not open a browser; show the link only"
	flagTokenName = "`TEXT` that names token and key in the dashboard (default: relay on this host)"

	logoutShort   = "revoke the token that the login made, and forget it"
	logoutLong    = "Revoke the token of the login at this relay and forget it; one that was handed in by\n--with-token stays valid. The SSH key still logs in."
	flagLogoutKey = "take the SSH key from the account too"

	doctorShort = "check everything between a local server and the relay"
	doctorLong  = `Check config, logins, name resolution, port, host key, login, aliases, local servers and clock,
and change nothing. Each line is a verdict (ok, warn, fail, skip), a check, the reason, and
what to do. The output has no secrets in it. Exit 1 when a check fails.`
	flagDoctorPort = "`PORT` of the local server that the named aliases lead to"
	flagJSONList   = "print a JSON list"

	completionShort   = "write the completion script of a shell, alias names included"
	completionLong    = "Write the completion script of bash, zsh, fish or powershell. It offers alias names too."
	completionExample = `  relay completion bash > ~/.local/share/bash-completion/completions/relay
  relay completion zsh > "${fpath[1]}/_relay"
  relay completion fish > ~/.config/fish/completions/relay.fish`
	manShort = "write the manual pages into a folder"
)

// manExits is the part of the manual about exit codes and environment.
const manExits = `.SH EXIT STATUS
.TP
.B 0
It went well.
.TP
.B 1
It failed.
.TP
.B 2
It was called in a wrong way.
.TP
.B 3
The login was refused, or the host key is not the known one.
.TP
.B 4
There is no such thing.
.TP
.B 5
The alias was taken over, or is not yours.
.TP
.B 69
The relay cannot be reached.
.TP
.B 130
It was interrupted; relay up ends with 0.
.SH ENVIRONMENT
.TP
.B RELAY_SERVER
SSH address HOST:PORT of the relay.
.TP
.B RELAY_TOKEN
API token: commands go over the API.
.TP
.B RELAY_URL
Address of the dashboard and API.
.TP
.B NO_COLOR
When set, there are no colors.
`

package main

import (
	"fmt"
	"strconv"

	"relay"
	"relay/client"
	"relay/record"
)

// What relay up says beside the fixed lines.

const (
	upJSON = `
With --output json each line of stdout is one object. Its type says which keys it has:
  hello      host, baseUrl, user, version
  online     alias, url, queuedEvents           refused  alias, code, message
  ready      again, aliases [{alias, target}]   lost     message, retryInMs
  request    event, attempt (as the API has them)
  stale, offline, superseded  alias             stopping retryAfterMs
  released   alias, released                    error    alias, code, message
  revoked    alias, message                      dropped  lines
  local-down, local-up, local-host, local-speaks-tls, local-speaks-http, local-certificate
             alias, target, message, hint
More types and keys may come; ignore those you don't know.`

	pressHelp  = "press ? for keys"
	keysHelp   = "keys: j k select, r replay it, d details, c copy as curl, o open in the browser, / filter, R replay what is queued, Esc back, q quit"
	keysActive = "  r replay  d details  c curl  o open  Esc back"
	noneShown  = "no request was shown yet"
	noneFits   = "no request fits the filter"
	tooMany    = "wait a moment: the last keys are still being worked on"
	copied     = "copied the curl command; if your terminal did not take it, press c again to print it"
	noOpener   = "no browser can be opened here; the address is:"
)

// replayMark is how a replay is told from an original.
func replayMark(a *record.Attempt) string {
	if a.Kind != relay.KindReplay {
		return ""
	}
	return " replay #" + strconv.Itoa(a.Number)
}

// logLine is a line of the request log; with several aliases it names which.
func logLine(e *record.Summary, a *record.Attempt, several bool) string {
	line := requestLine(e, a)
	if several {
		line += " alias " + e.Alias
	}
	return line
}

func keyFailed(what string, err error) string { return what + ": " + err.Error() }

func isQueued(id string) string { return id + " is queued: its alias is offline" }

func filterIs(filter string) string {
	if filter == "" {
		return "the filter is off"
	}
	return fmt.Sprintf("only requests with %q are shown; / and Enter shows all again", filter)
}

func filterPrompt(draft string) string { return "filter: " + record.SafeText(draft) + "_" }

func chosen(at, of int, line string) string {
	return fmt.Sprintf("> %d/%d  %s", at, of, record.SafeText(line))
}

func moreLines(n int, id string) string {
	return fmt.Sprintf("… %d more %s: relay show %s", n, plural(n, "line"), id)
}

func localNews(n client.LocalNews) string { return n.Text }

func tooManyAliases(n int) string {
	return fmt.Sprintf("%d aliases are too many for one connection; it carries %d", n, mostAliases)
}

package main

import (
	"fmt"

	"relay/record"
)

// Texts of relay up besides the fixed lines.

const (
	upJSON = `
With --output json each line of stdout is one object. Its keys depend on its type:
  hello      host, baseUrl
  online     alias, url, queuedEvents           refused  alias, code, message
  ready      again, aliases [{alias, target}]   lost     message, retryInMs
  request    event, attempt (as the API has them)
  stale, offline, superseded  alias             stopping retryAfterMs
  revoked    alias, message                     missed   (requests are not in the log)
  local-down, local-up, local-host, local-speaks-tls, local-speaks-http, local-certificate
             alias, target, message, hint
Ignore unknown types and keys: more may be added.`
)

// logLine is a line of the request log; with several aliases it names the alias.
func logLine(e *record.Summary, a *record.Attempt, several bool) string {
	line := record.AttemptLine(e, a).String()
	if several {
		line += " alias " + e.Alias
	}
	return line
}

func tooManyAliases(n int) string {
	return fmt.Sprintf("%d aliases are too many for one connection; the limit is %d", n, maxAliases)
}

func isQueued(id string) string { return id + " is queued: its alias is offline" }

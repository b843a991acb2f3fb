package main

import (
	"fmt"
	"strings"
	"time"

	"relay/client"
	"relay/record"
)

// Texts about logins, shares and findings.

const (
	noLogins           = "there is no login; commands use SSH with the key, or RELAY_TOKEN"
	waitingForApproval = "waiting for somebody who is signed in there to approve the key, 2 minutes at most"
	tokenWins          = "RELAY_TOKEN is set and takes precedence over login and key: unset it, or set a valid one"
	keyStays           = "the SSH key still logs in; remove it in the dashboard, or use relay logout --key next time"
)

func tokenName(host string) string {
	if host == "" {
		return "relay"
	}
	return "relay on " + record.SafeTextMax(host, 60)
}

func madeKey(file, fingerprint string) string {
	return "there was no SSH key, so one was made: " + file + " (" + fingerprint + ")"
}

// keyOfAnother warns that the key logs in to another account than the token.
func keyOfAnother(user string) string {
	return "warning: the token works, but the SSH key belongs to another account: tunnels go as " + user +
		"; relay login URL --with-token --identity FILE uses another key"
}

func keyNotRegistered(err error) string {
	return "warning: the token works, but no SSH key was registered with it: " + err.Error()
}
func openLink(link string) string { return "Open  " + link }
func codeIs(code string) string   { return "Code: " + code }

func loggedInAs(l client.Login) string {
	return "Logged in to " + l.BaseURL + " as " + l.User
}

func tokenStays(l *client.Login) string {
	return "the token lacks the scope to revoke itself, so it stays valid; revoke it at " + l.BaseURL + "/account if nothing else uses it"
}

// madeElsewhere is about a token that was passed by --with-token; id is "" where it is
// not known.
func madeElsewhere(l *client.Login, id string) string {
	if id == "" {
		return "the token was made elsewhere and stays valid; revoke it at " + l.BaseURL + "/account"
	}
	return "the token was made elsewhere and stays valid; revoke it with relayd token rm " + id + " or at " + l.BaseURL + "/account"
}

func loggedOut(l *client.Login) string { return "Logged out of " + l.BaseURL }

func stillValid(l *client.Login) string {
	return "logged out here, but " + l.BaseURL + " could not be reached, so the token is still valid"
}

func stillLogsIn(l *client.Login) string {
	return "logged out of " + l.BaseURL + ", but the SSH key still logs in"
}

func loginsKept(list []client.Login) string {
	var where []string
	for _, l := range list {
		where = append(where, l.BaseURL+" as "+l.User)
	}
	return strings.Join(where, ", ")
}

func endpointText(d client.Endpoint) string {
	if d.Name == "api" {
		return "with a token, over the API at " + d.Addr
	}
	return "with a key, over SSH at " + d.Addr
}

func shareReplay(url string) string { return "curl -X POST " + url }

func shareEnds(at *record.Time) string {
	if at == nil {
		return "it never expires; revoke it in the dashboard"
	}
	return "it expires " + at.Local().Format(time.DateTime) + "; revoke it in the dashboard"
}

// findingLine is a finding with its reason in a column.
func findingLine(f client.Finding, width int) string {
	line := fmt.Sprintf("%-4s  %-*s  %s", f.Verdict, width, f.Check, f.Reason)
	if f.Fix != "" {
		line += "; fix: " + f.Fix
	}
	return line
}

func checksFailed(n int) string {
	return fmt.Sprintf("%d %s failed; see what each line says to do", n, plural(n, "check"))
}

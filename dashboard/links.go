package dashboard

import (
	"net/url"
	"strconv"
	"strings"
)

// Addresses on this site. Names and ids need no escaping: aliases are DNS labels,
// accounts and ids have alphabets of their own. templ sanitises every address that it
// writes into a page.

// aliasPath is the page of an alias, or what is below it; its name comes first.
func aliasPath(parts ...string) string { return "/aliases/" + strings.Join(parts, "/") }

// eventPath is the page of an event, or what is below it; its id comes first.
func eventPath(parts ...string) string { return "/events/" + strings.Join(parts, "/") }

// apiEventPath is an event in the API, or what is below it: its bytes and exports.
func apiEventPath(parts ...string) string { return "/api/v1/events/" + strings.Join(parts, "/") }

// sharePath is the page of a share, or what is below it. The token, which comes first, is
// the secret of the share.
func sharePath(parts ...string) string { return "/s/" + strings.Join(parts, "/") }

// attemptPath is one attempt of an event in the API.
func attemptPath(id string, n int, what string) string {
	return apiEventPath(id, "attempts", strconv.Itoa(n), what)
}

func withQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// localPath reads a remembered page: a path on this site, or else home. A path that
// begins with two slashes would be another host's.
func localPath(escaped string) string {
	path, err := url.QueryUnescape(escaped)
	if err != nil || len(path) > 2048 || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

// exportMenu lists all of record.ExportFormats, in the order of the menu.
var exportMenu = []struct{ Format, Name, What string }{
	{"curl", "cURL", "a shell command that sends the same bytes"},
	{"go", "Go test", "sends the exact bytes to your handler and checks the status"},
	{"js", "JavaScript test", "the same, for node --test"},
	{"python", "Python test", "the same, for pytest or python"},
	{"har", "HAR", "request and responses, for browser tools and Postman"},
	{"json", "JSON", "the whole record, as the API returns it"},
}

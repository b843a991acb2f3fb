package dashboard

import (
	"net/url"
	"strconv"
	"strings"
)

// Addresses on this site. Names and ids need no escaping: aliases are DNS labels,
// accounts and ids have alphabets of their own. templ sanitises every address that it
// writes into a page.

// aliasPath is the page of an alias, or what is below it.
func aliasPath(name string, below ...string) string { return join("/aliases/"+name, below) }

// eventPath is the page of an event, or what is below it.
func eventPath(id string, below ...string) string { return join("/events/"+id, below) }

// apiEventPath is an event in the API, or what is below it: its bytes and exports.
func apiEventPath(id string, below ...string) string { return join("/api/v1/events/"+id, below) }

// sharePath is the page of a share, or what is below it. The token is the secret of
// the share.
func sharePath(token string, below ...string) string { return join("/s/"+token, below) }

func join(path string, below []string) string {
	for _, part := range below {
		path += "/" + part
	}
	return path
}

// attemptPath is one attempt of an event in the API.
func attemptPath(id string, n int, what string) string {
	return apiEventPath(id, "attempts", strconv.Itoa(n), what)
}

// exportPath is an event in another format.
func exportPath(id, format string) string { return apiEventPath(id, "export") + "?format=" + format }

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

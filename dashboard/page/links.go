package page

import (
	"net/url"
	"strconv"
	"strings"
)

// AliasPath returns the path of the page of an alias, or of a page below it. The first part is the
// name of the alias.
func AliasPath(parts ...string) string { return "/aliases/" + strings.Join(parts, "/") }

// EventPath returns the path of the page of an event, or of a page below it. The first part is the id
// of the event.
func EventPath(parts ...string) string { return "/events/" + strings.Join(parts, "/") }

// APIEventPath returns the path of an event in the API, or of its bytes and exports. The first part is
// the id of the event.
func APIEventPath(parts ...string) string { return "/api/v1/events/" + strings.Join(parts, "/") }

// SendPath returns the path of the page that makes a new event of an alias. from is the id of the event that
// the new one is made from; "" = none.
func SendPath(alias, from string) string {
	q := url.Values{}
	if from != "" {
		q.Set("from", from)
	}
	return WithQuery(AliasPath(alias, "send"), q)
}

// SharePath returns the path of the page of a share, or of a page below it. The first part is the token,
// which is the secret of the share.
func SharePath(parts ...string) string { return "/s/" + strings.Join(parts, "/") }

// AttemptPath returns the path of a part of an attempt in the API, such as response.raw.
func AttemptPath(id string, n int, what string) string {
	return APIEventPath(id, "attempts", strconv.Itoa(n), what)
}

// WithQuery returns an address with a query, which may be empty.
func WithQuery(path string, q url.Values) string {
	if len(q) == 0 {
		return path
	}
	return path + "?" + q.Encode()
}

// LocalPath returns a remembered path if it is on this site, or else the path of the home page. A path
// that begins with two slashes leads to another host.
func LocalPath(escaped string) string {
	path, err := url.QueryUnescape(escaped)
	if err != nil || len(path) > 2048 || !strings.HasPrefix(path, "/") || strings.HasPrefix(path, "//") || strings.ContainsAny(path, "\\\r\n\t") {
		return "/"
	}
	return path
}

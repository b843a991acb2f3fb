package record

import (
	"bytes"
	"fmt"
	"net/http"
)

// WarningHostRefused is the code of the warning that the local server refused the request
// because of its Host header.
const WarningHostRefused = "host-refused"

// HostRefusedBy names the framework whose development server refused a request because of
// its Host header, recognised by the text of its answer; "" if none did. body may be the
// beginning of the body, and may hold chunk lines.
func HostRefusedBy(status int, body []byte) string {
	has := func(text string) bool { return bytes.Contains(body, []byte(text)) }
	switch {
	case status == http.StatusForbidden && has("Blocked request. This host ("):
		return "Vite"
	case status == http.StatusBadRequest && (has("DisallowedHost") || has("Invalid HTTP_HOST header")):
		return "Django" // with DEBUG on; without it the page says nothing but Bad Request
	case status == http.StatusForbidden && has("Invalid Host header"),
		status == http.StatusOK && bytes.Equal(bytes.TrimSpace(body), []byte("Invalid Host header")): // webpack-dev-server before 5
		return "webpack-dev-server"
	case status == http.StatusForbidden && (has("Blocked hosts: ") || has("Blocked host: ")): // from Rails 7; Rails 6
		return "Rails"
	}
	return ""
}

// HostRefusedHint says what to do about a Host header that the local server of an alias
// refuses.
func HostRefusedHint(alias string) string {
	return fmt.Sprintf("run relay up with --host-header rewrite, or relayd alias set %s hostHeader=rewrite, or make the server accept the host", alias)
}

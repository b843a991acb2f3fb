package people

import (
	"cmp"
	"strings"

	"relay"
	"relay/record"
)

// Product names of browsers and systems in a User-Agent, with their display names. The User-Agent of
// most browsers names several products, so the first match in the list decides.
var (
	browsers = [][2]string{
		{"Edg/", "Edge"},
		{"EdgA/", "Edge"},
		{"EdgiOS/", "Edge"},
		{"OPR/", "Opera"},
		{"OPT/", "Opera"},
		{"OPiOS/", "Opera"},
		{"Firefox/", "Firefox"},
		{"FxiOS/", "Firefox"},
		{"CriOS/", "Chrome"},
		{"HeadlessChrome/", "Chrome"},
		{"Chrome/", "Chrome"},
		{"Version/", "Safari"},
	}
	systems = [][2]string{
		{"iPhone", "iPhone"},
		{"iPad", "iPad"},
		{"Android", "Android"},
		{"CrOS", "ChromeOS"},
		{"Windows", "Windows"},
		{"Macintosh", "macOS"},
		{"Linux", "Linux"},
	}
)

// browserText returns the browser and system of a session, or its User-Agent if that is not recognised.
func browserText(s relay.Session) string {
	if text := browserOf(s.UserAgent); text != "" {
		return text
	}
	return cmp.Or(record.SafeTextMax(s.UserAgent, 120), "unknown browser")
}

// browserOf returns a text such as "Firefox 140 on Linux"; "" = unknown.
func browserOf(agent string) string {
	if !strings.HasPrefix(agent, "Mozilla/5.0 (") {
		return ""
	}
	for _, b := range browsers {
		_, version, ok := strings.Cut(agent, b[0])
		end := strings.IndexFunc(version, func(c rune) bool { return c < '0' || c > '9' })
		if end < 0 {
			end = len(version)
		}
		if !ok || end == 0 || end > 5 {
			continue
		}
		text := b[1] + " " + version[:end]
		for _, system := range systems {
			if strings.Contains(agent, system[0]) {
				return text + " on " + system[1]
			}
		}
		return text
	}
	return ""
}

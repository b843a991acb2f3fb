package people

import (
	"testing"

	"relay"
)

func TestBrowserText(t *testing.T) {
	t.Parallel()
	for agent, want := range map[string]string{
		"Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0":                                                                                          "Firefox 140 on Linux",
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/156.0.0.0 Safari/537.36":                                                   "Chrome 156 on Linux",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Safari/537.36 Edg/156.0.0.0":                                   "Edge 156 on Windows",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Safari/605.1.15":                                           "Safari 18 on macOS",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/137.0.7151.51 Mobile/15E148 Safari/604.1":                  "Chrome 137 on iPhone",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.0 EdgiOS/137.0.3296.62 Mobile/15E148 Safari/605.1.15": "Edge 137 on iPhone",
		"Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.5 Mobile/15E148 Safari/604.1 OPT/5.5.1":               "Opera 5 on iPhone",
		"Mozilla/5.0 (Linux; Android 10; K) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/156.0.0.0 Mobile Safari/537.36":                                                 "Chrome 156 on Android",
		"curl/8.5.0":                     "curl/8.5.0",
		"Mozilla/5.0 (":                  "Mozilla/5.0 (",
		"Mozilla/5.0 (x) Chrome/":        "Mozilla/5.0 (x) Chrome/",
		"Mozilla/5.0 (x) Chrome/<b>":     "Mozilla/5.0 (x) Chrome/<b>",
		"Mozilla/5.0 (x) Firefox/123456": "Mozilla/5.0 (x) Firefox/123456",
		"Mozilla/5.0 (plan9) Firefox/9":  "Firefox 9",
		"":                               "unknown browser",
	} {
		if got := browserText(relay.Session{UserAgent: agent}); got != want {
			t.Errorf("%s: %q, want %q", agent, got, want)
		}
	}
}

package relay

import (
	"slices"
	"strings"
	"time"
)

// Alias is a named public endpoint. Values are immutable: a change of the alias makes a new value, so code
// may keep a pointer while it serves a request.
type Alias struct {
	ID        int64
	Name      string
	Owner     int64
	OwnerName string
	// OwnerMaxQueue is MaxQueue of the owner's account.
	OwnerMaxQueue *int64
	Settings      Settings
	CreatedAt     time.Time
	// LastOnlineAt is the time at which the present state of the alias began: a tunnel was attached or lost,
	// became stale or alive, or was paused or resumed. Zero = never online.
	LastOnlineAt time.Time
}

// Policies for Settings.HostHeader: HostPreserve sends the caller's Host header, HostRewrite the address of the
// local server. Any other value of Settings.HostHeader is itself sent as the Host header.
const (
	HostPreserve = "preserve"
	HostRewrite  = "rewrite"
)

// Settings are the settings of an alias, with the JSON names of the API. The zero value
// is not valid; start from DefaultSettings.
type Settings struct {
	OfflineStatus    int             `json:"offlineStatus"`
	AutoDeliver      bool            `json:"autoDeliver"`
	HostHeader       string          `json:"hostHeader"`
	Forwarded        bool            `json:"forwarded"`
	FreshConnections bool            `json:"freshConnections"`
	ResponseTimeout  *time.Duration  `json:"-"`          // nil = the default of the server; in the API a duration string or null
	Retention        *time.Duration  `json:"-"`          // nil = the default of the server; in the API a duration string or null
	Handshakes       []string        `json:"handshakes"` // names of challenges that are answered while offline, see package handshake
	Answers          []OfflineAnswer `json:"answers"`
	// VerifyToken is the token that Meta and WebSub hubs send to check the URL of the alias. It is stored
	// encrypted. Settings that were read from the store have an empty SecretText in its place; only package
	// delivery reads the value.
	VerifyToken *SecretText `json:"-"`
	Paused      bool        `json:"paused"`
}

// OfflineAnswer replaces the offline status for the requests that it matches, while the alias is offline. It
// changes the response only, not the handling of the event.
type OfflineAnswer struct {
	Method     *string     `json:"method"` // nil = any
	PathPrefix string      `json:"pathPrefix"`
	Status     int         `json:"status"`
	Headers    [][2]string `json:"headers"`
	Body       AnswerBody  `json:"body"`
}

// AnswerBody is the body of an OfflineAnswer. Encoding is utf8 or base64.
type AnswerBody struct {
	Encoding string `json:"encoding"`
	Data     string `json:"data"`
}

// AnswersChallenge reports whether the alias answers challenges with this name while it is offline.
func (s *Settings) AnswersChallenge(name string) bool {
	return slices.Contains(s.Handshakes, name) || slices.Contains(s.Handshakes, "all")
}

// AnswerTo returns the first answer that matches the method and target of a request, or nil.
func (s *Settings) AnswerTo(method string, target []byte) *OfflineAnswer {
	for i := range s.Answers {
		a := &s.Answers[i]
		if (a.Method == nil || *a.Method == method) && strings.HasPrefix(string(target), a.PathPrefix) {
			return a
		}
	}
	return nil
}

// DefaultSettings returns the settings of a new alias.
func DefaultSettings() Settings {
	return Settings{OfflineStatus: 202, HostHeader: HostPreserve, Handshakes: []string{}, Answers: []OfflineAnswer{}}
}

// AliasStatus is the part of the state of an alias that is not in its database row.
type AliasStatus struct {
	State  TunnelState
	Since  time.Time   // time at which State began; zero for TunnelNever
	Tunnel *TunnelInfo // nil when State is offline or never
	QueueStats
	LastEventAt time.Time // ReceivedAt of the newest event; zero = no event
}

// Usage counts the stored events and bytes of an alias or an account.
type Usage struct {
	Events int
	Bytes  int64 // bytes of requests and responses, as --max-alias-storage counts them
}

// AccountUsage holds the stored and queued amounts of all aliases of an account, and its limits; 0 = no limit.
type AccountUsage struct {
	Bytes, Limit       int64
	Queued, QueueLimit int
}

// QueueStats counts the queue of an alias.
type QueueStats struct {
	Queued         int   // queued attempts
	QueuedEvents   int   // events of callers that were neither delivered nor released; replay-queued releases them
	QueuedBytes    int64 // request bytes of queued attempts
	OldestQueuedAt time.Time
}

var reservedLabels = map[string]bool{
	"www": true, "api": true, "app": true, "admin": true, "login": true, "dashboard": true,
	"mail": true, "relay": true, "link": true, "git": true, "root": true, "static": true,
	"assets": true, "autodiscover": true, "wpad": true, "localhost": true,
}

// ReservedLabel reports whether a valid label is forbidden as the name of an alias.
func ReservedLabel(label string) bool {
	return reservedLabels[label] || strings.HasPrefix(label, "xn--")
}

// ValidLabel reports whether label is a DNS label in lower case: letters, digits and
// inner hyphens, 1 to 63 of them (RFC 1123, section 2.1).
func ValidLabel(label string) bool {
	if len(label) < 1 || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
		return false
	}
	for i := range len(label) {
		c := label[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}

package admission

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestWhoGivesWay is a table over both fronts and every class. The process has 40 file descriptors;
// clients may use 20 of them, and one front 18.
func TestWhoGivesWay(t *testing.T) {
	t.Parallel()
	type conns map[string]int // key such as "http idle": number of existing connections
	for name, tt := range map[string]struct {
		there        conns
		http, logins Limits
		comes        string
		want         string // kind of the connection that is evicted; "" = none is evicted, "none" = the new one is refused
		reason       string
	}{
		"space":                                   {conns{"http idle": 9, "ssh logged in": 9}, Limits{}, Limits{}, "http", "", ""},
		"http takes the place of idle http":       {conns{"http idle": 9, "http busy": 2, "ssh logged in": 9}, Limits{}, Limits{}, "http", "http idle", ReasonFiles},
		"http first takes of its own":             {conns{"http idle": 10, "ssh unknown": 10}, Limits{}, Limits{}, "http", "http idle", ReasonFiles},
		"ssh first takes of its own":              {conns{"http idle": 10, "ssh unknown": 10}, Limits{}, Limits{}, "ssh", "ssh unknown", ReasonFiles},
		"a login takes the place of idle http":    {conns{"http idle": 12, "ssh logged in": 8}, Limits{}, Limits{}, "ssh", "http idle", ReasonFiles},
		"a caller takes the place of a stranger":  {conns{"http busy": 10, "ssh unknown": 10}, Limits{}, Limits{}, "http", "ssh unknown", ReasonFiles},
		"busy callers and logins keep theirs":     {conns{"http busy": 12, "ssh logged in": 8}, Limits{}, Limits{}, "ssh", "none", ReasonFiles},
		"a login that a person approves keeps it": {conns{"http busy": 12, "ssh prompting": 8}, Limits{}, Limits{}, "http", "none", ReasonFiles},
		"callers leave some to logins":            {conns{"http busy": 18}, Limits{}, Limits{}, "http", "none", ReasonFiles},
		"and logins get them":                     {conns{"http busy": 18, "ssh logged in": 1}, Limits{}, Limits{}, "ssh", "", ""},
		"logins leave some to callers":            {conns{"ssh logged in": 18}, Limits{}, Limits{}, "ssh", "none", ReasonFiles},
		"who fills its share evicts nobody else":  {conns{"ssh logged in": 18, "http idle": 2}, Limits{}, Limits{}, "ssh", "none", ReasonFiles},
		"nodes count among no clients":            {conns{"ssh node": 30, "http busy": 10, "ssh logged in": 9}, Limits{}, Limits{}, "ssh", "", ""},
		"the limit of http":                       {conns{"http busy": 2, "http idle": 1}, Limits{Total: 3}, Limits{}, "http", "http idle", ReasonTotal},
		"the limit of http, all busy":             {conns{"http busy": 3}, Limits{Total: 3}, Limits{}, "http", "none", ReasonTotal},
		"the limit of ssh takes no caller's":      {conns{"ssh logged in": 3, "http idle": 3}, Limits{}, Limits{Total: 3}, "ssh", "none", ReasonTotal},
		"the limit of ssh":                        {conns{"ssh logged in": 2, "ssh unknown": 1}, Limits{}, Limits{Total: 3}, "ssh", "ssh unknown", ReasonTotal},
		"the limit of logins":                     {conns{"ssh unknown": 3}, Limits{}, Limits{Unknown: 3}, "ssh", "ssh unknown", ReasonUnauthenticated},
		"the limit of a source of http":           {conns{"http idle": 3}, Limits{PerSource: 3}, Limits{}, "http", "http idle", ReasonSource},
		"the limit of a source of ssh":            {conns{"ssh logged in": 3, "http idle": 3}, Limits{}, Limits{PerSource: 3}, "ssh", "none", ReasonSource},
		"the same source at the other front":      {conns{"ssh logged in": 3}, Limits{PerSource: 1}, Limits{PerSource: 3}, "http", "", ""},
		"the limit of a source, and of all files": {conns{"http busy": 18, "ssh unknown": 2}, Limits{PerSource: 18}, Limits{}, "http", "none", ReasonSource},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := NewLimiter(40)
			fronts := map[string]*Front{"http": l.Front(tt.http), "ssh": l.Front(tt.logins)}
			class := map[string]Class{"unknown": Unknown, "idle": Idle, "busy": Busy, "prompting": Prompting, "logged in": LoggedIn, "node": Node}
			names := map[*Slot]string{}
			add := func(kind string) (*Slot, string) {
				front, is, _ := strings.Cut(kind, " ")
				s := (&peer{silent: time.Minute}).slot(netip.MustParseAddr("203.0.113.1"))
				names[s] = kind
				if is == "node" {
					s.OfNode = true
					fronts[front].AcquireForNode(s, true)
					s.SetClass(Node)
					return nil, ""
				}
				first := Unknown
				if front == "http" {
					first = Idle
				}
				evicted, reason := fronts[front].Acquire(s, first)
				if is != "" {
					s.SetClass(class[is])
				}
				return evicted, reason
			}
			for kind, n := range tt.there {
				for range n {
					if evicted, reason := add(kind); evicted != nil || reason != "" {
						t.Fatalf("%s has no place: %s", kind, reason)
					}
				}
			}
			evicted, reason := add(tt.comes)
			got := names[evicted]
			if evicted == nil && reason != "" {
				got = "none"
			}
			if got != tt.want || reason != tt.reason {
				t.Errorf("got the place of %q for %q, want %q for %q", got, reason, tt.want, tt.reason)
			}
			if l.open > l.most {
				t.Errorf("%d clients, of %d", l.open, l.most)
			}
		})
	}
}

// TestShed: a failed accept for lack of file descriptors ends waiting connections, first those of its
// own front, and no others.
func TestShed(t *testing.T) {
	t.Parallel()
	l := NewLimiter(0)
	http, logins := l.Front(Limits{}), l.Front(Limits{})
	var all []*peer
	add := func(f *Front, first, class Class) {
		p := &peer{silent: time.Minute}
		all = append(all, p)
		s := p.slot(netip.Addr{})
		f.Acquire(s, first)
		s.SetClass(class)
	}
	for range shedPerFailure - 2 {
		add(http, Idle, Idle)
	}
	for range 5 {
		add(http, Idle, Busy)
		add(logins, Unknown, Unknown)
		add(logins, Unknown, LoggedIn)
	}
	short := &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	if n := http.Shed(errors.New("something else")); n != 0 {
		t.Errorf("%d ended for another reason", n)
	}
	if n := http.Shed(short); n != shedPerFailure {
		t.Errorf("%d ended", n)
	}
	if h, s := http.Counts(), logins.Counts(); h[Idle] != 0 || h[Busy] != 5 || s[Unknown] != 3 || s[LoggedIn] != 5 {
		t.Errorf("left: %v, %v", h, s)
	}
	if n := http.Shed(short) + http.Shed(short); n != 3 {
		t.Errorf("then %d ended", n)
	}
	var told []string
	for _, p := range all {
		told = append(told, p.evicted...)
	}
	if want := slices.Repeat([]string{ReasonFiles}, shedPerFailure+3); !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}

package main

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/cli"
	"relay/client"
	"relay/record"
)

// upScreen prints the output of relay up. The lines about the opened tunnel and the request log go to stdout,
// everything else goes to stderr by the function say. Its methods are safe for concurrent use.
type upScreen struct {
	w        *cli.Printer
	say      func(string)
	mode     string // value of --output
	forwards []client.Forward

	mu         sync.Mutex
	helloShown bool            // whether cli.ConnectedLine was printed
	shown      map[string]bool // aliases whose cli.OnlineLines were printed
	queued     map[string]int
	refusals   map[string]string // last refusal message of each alias that is requested again
	ready      bool              // whether the line cli.Disconnect was printed, the last one about the opened tunnel
	missed     bool              // the warning about missing requests was printed, and no request has been shown since

	reason   string // last printed reason for a lost connection; "" after a reconnect
	reasonAt time.Time
}

func newScreen(w *cli.Printer, say func(string), mode string, forwards []client.Forward) *upScreen {
	return &upScreen{w: w, say: say, mode: mode, forwards: forwards, shown: map[string]bool{}, queued: map[string]int{}, refusals: map[string]string{}}
}

// line writes a line of text, unless the output is json.
func (s *upScreen) line(text string) {
	if s.mode != outputJSON {
		_ = s.w.Line(text)
	}
}

// object writes a line of --output json.
func (s *upScreen) object(v any) {
	if s.mode == outputJSON {
		_ = s.w.Object(v)
	}
}

// message prints a message of the relay.
func (s *upScreen) message(m *client.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.object(m)
	switch m.Type {
	case client.TypeHello:
		if !s.helloShown {
			s.helloShown = true
			s.line(cli.ConnectedLine(m.Host))
		}
	case relay.NoticeOnline:
		s.online(m)
		if m.Paused {
			s.say("alias " + m.Alias + " is paused: requests are queued until it is resumed in the dashboard")
		}
	case client.TypeRequest:
		if s.mode != outputCompact || m.Event == nil || m.Attempt == nil {
			return
		}
		line := record.AttemptLine(m.Event, m.Attempt)
		if len(s.forwards) > 1 {
			line.What = strings.TrimSpace("alias " + record.SafeText(m.Event.Alias) + " " + line.What)
		}
		_ = s.w.Event(line)
		s.missed = false
	case relay.NoticeRefused:
		s.refused(m)
	case relay.NoticeSuperseded:
		if len(s.forwards) > 1 {
			s.say(m.Superseded())
		}
	case relay.NoticeStale, relay.NoticeOffline:
		s.say("alias " + m.Alias + " is offline: requests are queued")
	case relay.NoticeStopping:
		s.say("the relay is stopping")
	case relay.NoticeMoving:
		s.say("this node of the relay takes no more clients; connecting to another one")
	case relay.NoticeRevoked:
		if len(s.forwards) > 1 { // with a single alias, the error with which the program ends has the reason
			s.say(m.Message)
		}
	case client.TypeMissed:
		if !s.missed {
			s.say("some requests are not shown")
		}
		s.missed = true
	}
}

// refused prints the reason why an alias is not online. If the only alias is refused for good, it prints
// nothing, because the error with which the program ends has the reason.
func (s *upScreen) refused(m *client.Message) {
	text := "alias " + m.Alias + " was refused: " + m.Message
	switch {
	case !m.Transient():
		if len(s.forwards) > 1 {
			s.say(text)
		}
	case s.refusals[m.Alias] != text: // a repeated refusal is not printed again
		s.refusals[m.Alias] = text
		s.say(text + "; asking again")
	}
}

func (s *upScreen) online(m *client.Message) {
	s.queued[m.Alias] = 0
	if m.QueuedEvents != nil {
		s.queued[m.Alias] = *m.QueuedEvents
	}
	delete(s.refusals, m.Alias)
	if s.shown[m.Alias] {
		s.say("alias " + m.Alias + " is online")
		return
	}
	s.shown[m.Alias] = true
	for _, f := range s.forwards {
		if client.SameAlias(f.Alias, m.Alias) {
			for _, line := range cli.OnlineLines(m.Alias, m.URL, f.Target.URL) {
				s.line(line)
			}
		}
	}
	if s.ready {
		s.tellQueued()
	}
}

func (s *upScreen) tellQueued() {
	for _, f := range s.forwards {
		alias := cli.AliasLabel(f.Alias)
		if n := s.queued[alias]; n > 0 {
			s.line(cli.QueuedLine(alias, n))
			s.queued[alias] = 0
		}
	}
}

// connected prints cli.Disconnect, the last line about the opened tunnel. After the loss of a connection, it
// prints instead that the connection works again.
func (s *upScreen) connected(again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again {
		s.say("connected to the relay again")
	} else {
		s.line(cli.Disconnect)
	}
	s.ready, s.reason = true, ""
	s.tellQueued()
	type aliasTarget struct {
		Alias  string `json:"alias"`
		Target string `json:"target"`
	}
	list := make([]aliasTarget, 0, len(s.forwards))
	for _, f := range s.forwards {
		list = append(list, aliasTarget{f.Alias, f.Target.URL})
	}
	s.object(struct {
		Type    string        `json:"type"`
		Again   bool          `json:"again"`
		Aliases []aliasTarget `json:"aliases"`
	}{"ready", again, list})
}

// repeatAfter is the time for which the same reason for a lost connection is not repeated.
const repeatAfter = time.Minute

func (s *upScreen) lost(err error, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := err.Error()
	if text != s.reason || time.Since(s.reasonAt) > repeatAfter {
		s.reason, s.reasonAt = text, time.Now()
		in := ""
		if next >= 50*time.Millisecond {
			in = fmt.Sprintf(" in %.1f s", next.Seconds())
		}
		s.say(text + "; connecting again" + in)
	}
	s.object(struct {
		Type      string `json:"type"`
		Message   string `json:"message"`
		RetryInMs int64  `json:"retryInMs"`
	}{"lost", text, next.Milliseconds()})
}

// local prints a problem with a local server.
func (s *upScreen) local(n client.TargetEvent) {
	s.say(n.Text)
	if n.Hint != "" {
		s.say("hint: " + n.Hint)
	}
	s.object(n)
}

package main

import (
	"sync"
	"time"

	"relay/client"
)

// upScreen prints the output of relay up: the fixed lines and the request log on
// stdout, everything else by say. Its methods are safe for concurrent use.
type upScreen struct {
	w        *printer
	say      func(string)
	mode     string // of --output
	forwards []client.Forward

	mu         sync.Mutex
	helloShown bool            // line 1 is out
	shown      map[string]bool // aliases whose lines are out
	queued     map[string]int
	refusals   map[string]string // by alias that is requested again: why it was refused
	ready      bool              // the last of the fixed lines is out

	reason   string // of the last reported loss, and its time; "" after a reconnect
	reasonAt time.Time
}

func newScreen(w *printer, say func(string), mode string, forwards []client.Forward) *upScreen {
	return &upScreen{w: w, say: say, mode: mode, forwards: forwards, shown: map[string]bool{}, queued: map[string]int{}, refusals: map[string]string{}}
}

// message shows a message of the relay.
func (s *upScreen) message(m *client.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == outputJSON {
		_ = s.w.object(m)
	}
	switch m.Type {
	case client.TypeHello:
		if !s.helloShown {
			s.helloShown = true
			s.line(connectedTo(m.Host))
		}
	case client.TypeOnline:
		s.online(m)
	case client.TypeRequest:
		s.request(m)
	case client.TypeRefused:
		s.refused(m)
	case client.TypeSuperseded:
		if len(s.forwards) > 1 {
			s.say(takenOver(m.Alias))
		}
	default:
		s.notice(m)
	}
}

// refused says why an alias is not online. If the only alias is refused for good, the
// error at the end says it.
func (s *upScreen) refused(m *client.Message) {
	text := refused(m.Alias, m.Message)
	switch {
	case m.Transient():
		if s.refusals[m.Alias] != text { // not repeated for each try
			s.refusals[m.Alias] = text
			s.say(text + askingAgain)
		}
	case len(s.forwards) > 1:
		s.say(text)
	}
}

func (s *upScreen) request(m *client.Message) {
	if s.mode != outputCompact || m.Event == nil || m.Attempt == nil {
		return
	}
	_ = s.w.line(logLine(m.Event, m.Attempt, len(s.forwards) > 1))
}

// notice shows messages that change no state of the screen.
func (s *upScreen) notice(m *client.Message) {
	switch m.Type {
	case client.TypeStale, client.TypeOffline:
		s.say(offlineNow(m.Alias))
	case client.TypeStopping:
		s.say(stoppingNow)
	case client.TypeMoving:
		s.say(movingNow)
	case client.TypeRevoked:
		s.say(m.Message)
	case client.TypeMissed:
		s.say(someMissing)
	}
}

func (s *upScreen) online(m *client.Message) {
	s.queued[m.Alias] = 0
	if m.QueuedEvents != nil {
		s.queued[m.Alias] = *m.QueuedEvents
	}
	delete(s.refusals, m.Alias)
	if s.shown[m.Alias] {
		s.say(onlineAgain(m.Alias))
		return
	}
	s.shown[m.Alias] = true
	s.line(aliasOnline(m.Alias))
	s.line(publicURL(m.URL))
	s.line(localTarget(s.target(m.Alias)))
	if s.ready {
		s.tellQueued()
	}
}

func (s *upScreen) target(alias string) string {
	for _, f := range s.forwards {
		if client.SameAlias(f.Alias, alias) {
			return f.Target.URL
		}
	}
	return ""
}

// connected prints the last fixed line, or says that the connection is back.
func (s *upScreen) connected(again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again {
		s.say(backAgain)
	} else {
		s.line(pressCtrlC)
	}
	s.ready, s.reason = true, ""
	s.tellQueued()
	if s.mode == outputJSON {
		_ = s.w.object(readyMessage{Type: "ready", Again: again, Aliases: s.targets()})
	}
}

// readyMessage, lostMessage and localMessage are the lines that the client adds to
// those of the relay with --output json.
type readyMessage struct {
	Type    string        `json:"type"`
	Again   bool          `json:"again"`
	Aliases []aliasTarget `json:"aliases"`
}

type aliasTarget struct {
	Alias  string `json:"alias"`
	Target string `json:"target"`
}

type lostMessage struct {
	Type      string `json:"type"`
	Message   string `json:"message"`
	RetryInMs int64  `json:"retryInMs"`
}

type localMessage struct {
	Type    string `json:"type"`
	Alias   string `json:"alias"`
	Target  string `json:"target"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

func (s *upScreen) targets() []aliasTarget {
	list := make([]aliasTarget, 0, len(s.forwards))
	for _, f := range s.forwards {
		list = append(list, aliasTarget{f.Alias, f.Target.URL})
	}
	return list
}

func (s *upScreen) tellQueued() {
	for _, f := range s.forwards {
		for alias, n := range s.queued {
			if n > 0 && client.SameAlias(f.Alias, alias) {
				s.line(queuedWhileOffline(n, alias))
				s.queued[alias] = 0
			}
		}
	}
}

// repeatAfter is how long the same reason for a lost connection is not repeated.
const repeatAfter = time.Minute

func (s *upScreen) lost(err error, next time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if text := err.Error(); text != s.reason || time.Since(s.reasonAt) > repeatAfter {
		s.reason, s.reasonAt = text, time.Now()
		s.say(lostConnection(err, next))
	}
	if s.mode == outputJSON {
		_ = s.w.object(lostMessage{"lost", err.Error(), next.Milliseconds()})
	}
}

// local reports a problem with a local server.
func (s *upScreen) local(n client.TargetEvent) {
	s.say(n.Text)
	if n.Hint != "" {
		s.say(hintPrefix + n.Hint)
	}
	if s.mode == outputJSON {
		_ = s.w.object(localMessage{n.Kind, n.Alias, n.Target, n.Text, n.Hint})
	}
}

// line writes a line for people, which is left out with --output json.
func (s *upScreen) line(text string) {
	if s.mode != outputJSON {
		_ = s.w.line(text)
	}
}

package main

import (
	"sync"
	"time"

	"relay/client"
	"relay/record"
)

// screen is what relay up shows: the fixed lines and the request log on stdout,
// everything else by say. Its methods may be called by several goroutines.
type screen struct {
	w        *printer
	say      func(string)
	mode     string // of --output
	forwards []client.Forward

	mu     sync.Mutex
	begun  bool            // line 1 is out
	shown  map[string]bool // aliases whose lines are out
	queued map[string]int
	ready  bool // the last of the fixed lines is out
}

func newScreen(w *printer, say func(string), mode string, forwards []client.Forward) *screen {
	return &screen{w: w, say: say, mode: mode, forwards: forwards, shown: map[string]bool{}, queued: map[string]int{}}
}

// message shows what the relay said.
func (s *screen) message(m *client.Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mode == outputJSON {
		_ = s.w.json(m.Raw)
	}
	switch m.Type {
	case client.TypeHello:
		if !s.begun {
			s.begun = true
			s.line(connectedTo(m.Host))
		}
	case client.TypeOnline:
		s.online(m)
	case client.TypeRequest:
		if s.mode == outputCompact && m.Event != nil && m.Attempt != nil {
			_ = s.w.line(requestLine(m.Event, m.Attempt))
		}
	case client.TypeRefused:
		if len(s.forwards) > 1 { // of a single one it is the error at the end
			s.say(refused(m.Alias, m.Message))
		}
	case client.TypeSuperseded:
		if len(s.forwards) > 1 {
			s.say(takenOver(m.Alias))
		}
	default:
		s.notice(m)
	}
}

// notice shows what needs no keeping in mind.
func (s *screen) notice(m *client.Message) {
	switch m.Type {
	case client.TypeStale, client.TypeOffline:
		s.say(offlineNow(m.Alias))
	case client.TypeStopping:
		s.say(stoppingNow)
	case client.TypeReleased:
		s.say(released(record.Released{Alias: m.Alias, Released: m.Released}))
	case client.TypeError:
		s.say(m.Alias + ": " + m.Message)
	case client.TypeRevoked:
		s.say(m.Message)
	case client.TypeDropped:
		s.say(notShown(m.Lines))
	}
}

func (s *screen) online(m *client.Message) {
	s.queued[m.Alias] = m.QueuedEvents
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

func (s *screen) target(alias string) string {
	for _, f := range s.forwards {
		if client.SameAlias(f.Alias, alias) {
			return f.Target.URL
		}
	}
	return ""
}

// connected ends the fixed lines, or says that we are back.
func (s *screen) connected(again bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if again {
		s.say(backAgain)
	} else {
		s.line(pressCtrlC)
	}
	s.ready = true
	s.tellQueued()
}

func (s *screen) tellQueued() {
	for _, f := range s.forwards {
		for alias, n := range s.queued {
			if n > 0 && client.SameAlias(f.Alias, alias) {
				s.line(queuedWhileOffline(n, alias))
				s.queued[alias] = 0
			}
		}
	}
}

func (s *screen) lost(err error, next time.Duration) { s.say(lostConnection(err, next)) }

// line writes one of the lines for people that programs do not read as JSON.
func (s *screen) line(text string) {
	if s.mode != outputJSON {
		_ = s.w.line(text)
	}
}

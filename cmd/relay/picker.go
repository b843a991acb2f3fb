package main

import (
	"strings"
	"sync"

	"relay/record"
)

// longestLog is how many requests can be gone back to.
const longestLog = 500

// logged is a request that was shown.
type logged struct {
	id   string
	line string
}

// picker is the log as something to walk through: which request is selected, and
// which are shown at all. Its methods may be called by several goroutines.
type picker struct {
	con *console

	mu     sync.Mutex
	all    []logged
	at     int // of all; -1 = none is selected
	filter string
	draft  *typed // the filter being typed, or nil
	copyOf string // the event that c was pressed on last
}

func newPicker(con *console) *picker { return &picker{con: con, at: -1} }

// add takes a request and tells whether it is to be shown.
func (p *picker) add(e *record.Summary, line string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.all) == longestLog {
		p.all = append(p.all[:0], p.all[1:]...)
		p.at = max(-1, p.at-1)
	}
	p.all = append(p.all, logged{e.ID, line})
	p.draw()
	return p.fits(line)
}

func (p *picker) fits(line string) bool {
	return p.filter == "" || strings.Contains(strings.ToLower(line), strings.ToLower(p.filter))
}

// move selects the next request that fits, by +1 or -1; the newest when none was
// selected. It tells whether there is one.
func (p *picker) move(by int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.copyOf = ""
	from := p.at + by
	if p.at < 0 {
		from, by = len(p.all)-1, -1
	}
	for i := from; i >= 0 && i < len(p.all); i += by {
		if p.fits(p.all[i].line) {
			p.at = i
			p.draw()
			return true
		}
	}
	return p.at >= 0
}

// selected gives the event that keys are about: the selected one, else the newest,
// which is selected by that; "" when there is none.
func (p *picker) selected() string {
	p.mu.Lock()
	none := p.at < 0
	p.mu.Unlock()
	if none && !p.move(-1) {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all[p.at].id
}

// again tells whether c is pressed on the same event twice in a row.
func (p *picker) again(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	same := p.copyOf == id
	p.copyOf = id
	if same {
		p.copyOf = ""
	}
	return same
}

// leave ends the selection.
func (p *picker) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.at, p.copyOf = -1, ""
	p.draw()
}

// typing tells whether a filter is being typed.
func (p *picker) typing() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.draft != nil
}

// begin starts the typing of a filter.
func (p *picker) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.draft = &typed{}
	p.draw()
}

// typed takes a key of a filter being typed; done tells that it counts from now on.
func (p *picker) typed(key string) (filter string, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch key {
	case keyEnter:
		p.filter, done = strings.TrimSpace(p.draft.String()), true
		p.draft, p.at = nil, -1
	case keyEscape:
		p.draft = nil
	case keyBack:
		p.draft.back()
	case keyUp, keyDown:
	default:
		p.draft.add(key)
	}
	p.draw()
	return p.filter, done
}

// draw shows the state below the log. mu is held.
func (p *picker) draw() {
	switch {
	case p.draft != nil:
		p.con.show(filterPrompt(p.draft.String()))
	case p.at < 0:
		p.con.show("")
	default:
		at, of := 0, 0
		for i, l := range p.all {
			if p.fits(l.line) {
				of++
				if i == p.at {
					at = of
				}
			}
		}
		p.con.show(chosen(at, of, p.all[p.at].line) + keysActive)
	}
}

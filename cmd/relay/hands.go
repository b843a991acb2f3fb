package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"relay"
	"relay/client"
	"relay/record"
)

const (
	mostWaiting  = 4        // keys whose work waits; more are not taken
	mostDetails  = 60       // lines of details that are shown
	mostAnswer   = 16 << 20 // bytes of an answer
	mostClipping = 64 << 10 // bytes that terminals take into the clipboard
)

// hands do what the keys of relay up ask for. What needs the relay is done one after
// another by a goroutine of its own, so that keys never wait.
type hands struct {
	p      *program
	up     *client.Up
	screen *screen
	con    *console
	pick   *picker
	out    *printer
	quit   func()

	work chan func(context.Context)
	wg   sync.WaitGroup
}

// listen obeys keys until ctx ends; wg waits for the work that they made.
func (h *hands) listen(ctx context.Context) *keyboard {
	h.work = make(chan func(context.Context), mostWaiting)
	h.wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case do := <-h.work:
				do(ctx)
			}
		}
	})
	var parser keyParser
	keys := openKeyboard(ctx, h.p.in, h.con, func(typed []byte) {
		for _, key := range parser.parse(typed, time.Now()) {
			h.press(key)
		}
	})
	if keys != nil {
		h.p.say(pressHelp)
	}
	return keys
}

// press takes one key.
func (h *hands) press(key string) {
	if h.pick.typing() {
		if filter, done := h.pick.typed(key); done {
			h.p.say(filterIs(filter))
		}
		return
	}
	switch key {
	case "j", keyDown:
		h.move(+1)
	case "k", keyUp:
		h.move(-1)
	case keyEscape:
		h.pick.leave()
	case "/":
		h.pick.begin()
	case "?":
		h.p.say(keysHelp)
	case "q":
		h.quit()
	case "R":
		h.release()
	case "r":
		h.about((*hands).replay)
	case "d", keyEnter:
		h.about((*hands).details)
	case "c":
		h.about((*hands).copyCURL)
	case "o":
		h.about((*hands).open)
	}
}

func (h *hands) move(by int) {
	if !h.pick.move(by) {
		h.p.say(h.nothing())
	}
}

func (h *hands) nothing() string {
	h.pick.mu.Lock()
	defer h.pick.mu.Unlock()
	if len(h.pick.all) > 0 {
		return noneFits
	}
	return noneShown
}

// release sends what was queued while offline; the relay says how much that was.
func (h *hands) release() {
	for _, f := range h.up.Forwards {
		if err := h.up.Release(f.Alias); err != nil {
			h.p.say(err.Error())
			return
		}
	}
}

// about does something with the selected event.
func (h *hands) about(do func(h *hands, ctx context.Context, id string)) {
	id := h.pick.selected()
	if id == "" {
		h.p.say(h.nothing())
		return
	}
	if _, err := relay.ParseID(id); err != nil {
		return
	}
	select {
	case h.work <- func(ctx context.Context) { do(h, ctx, id) }:
	default:
		h.p.say(tooMany)
	}
}

// ask runs a command on the tunnel's connection; false when it failed, which was
// said.
func (h *hands) ask(ctx context.Context, c client.Command) ([]byte, bool) {
	var answer bounded
	err := h.up.Ask(ctx, c, &answer)
	switch {
	case ctx.Err() != nil:
		return nil, false
	case err != nil:
		h.p.say(keyFailed(c.Name+" "+c.Arg, err))
		return nil, false
	}
	return answer.Bytes(), true
}

// bounded is a buffer that takes no more than mostAnswer.
type bounded struct{ bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > mostAnswer {
		return 0, fmt.Errorf("the answer has more than %d bytes", mostAnswer)
	}
	return b.Buffer.Write(p)
}

// replay sends an event again; that it went out is shown by the log itself.
func (h *hands) replay(ctx context.Context, id string) {
	answer, ok := h.ask(ctx, client.Command{Name: "replay", Arg: id})
	var e record.Event
	if ok && json.Unmarshal(answer, &e) == nil && e.State == relay.StateQueued {
		h.p.say(isQueued(id))
	}
}

// details shows an event, as much of it as is good below a log.
func (h *hands) details(ctx context.Context, id string) {
	answer, ok := h.ask(ctx, client.Command{Name: "show", Arg: id})
	if !ok {
		return
	}
	var e record.Event
	var text bytes.Buffer
	err := json.Unmarshal(answer, &e)
	if err == nil {
		err = showEvent(&printer{out: &text, color: h.out.color}, &e)
	}
	if err != nil {
		h.p.say(keyFailed("show "+id, err))
		return
	}
	lines := strings.SplitAfter(strings.TrimRight(text.String(), "\n"), "\n")
	if more := len(lines) - mostDetails; more > 0 {
		lines = append(lines[:mostDetails], moreLines(more, id))
	}
	_, _ = h.out.out.Write([]byte(strings.Join(lines, "") + "\n"))
}

// copyCURL puts the event as a command into the clipboard of the terminal (OSC 52),
// which tells nobody whether it took it; pressed again it prints it.
func (h *hands) copyCURL(ctx context.Context, id string) {
	again := h.pick.again(id)
	command, ok := h.ask(ctx, client.Command{Name: "export", Arg: id, Format: "curl"})
	switch {
	case !ok:
	case again || len(command) > mostClipping:
		_ = h.out.source(string(command))
	default:
		h.con.send("\x1b]52;c;" + base64.StdEncoding.EncodeToString(command) + "\a")
		h.p.say(copied)
	}
}

// open shows the event in the dashboard.
func (h *hands) open(_ context.Context, id string) {
	link := h.screen.baseURL() + "/events/" + id
	c := h.p.opener(link)
	if c != nil && c.Start() == nil {
		go func() { _ = c.Wait() }()
		return
	}
	h.p.say(noOpener)
	_ = h.out.line(link)
}

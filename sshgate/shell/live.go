package shell

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"relay"
	"relay/cli"
	"relay/record"
)

const (
	// FirstForward is the default of Config.FirstForward.
	FirstForward = 300 * time.Millisecond
	// noMore is how long a session waits for the next forward after one has come.
	noMore = 25 * time.Millisecond
	// FeedRetry is the default of Config.FeedRetry.
	FeedRetry = 5 * time.Second
)

// requestsMissed replaces omitted lines of the request log.
const requestsMissed = "… some requests are not shown"

// live is a session without a command. It prints the lines that relay up prints about an open tunnel, then a
// line for each request.
type live struct {
	*Shell
	out        *Queue[string] // lines that wait until the peer reads
	notices    *Queue[Notice]
	shown      map[string]bool // aliases whose lines were printed
	hostWarned bool            // a refused Host header was reported
	log        cli.RequestLog
	missed     bool // the last line about requests is requestsMissed
}

// run runs the session and returns its exit code when the peer leaves, the session ends, or the connection is
// closed. The end of stdin does not end it.
func (v *live) run() int {
	defer v.print()()
	var online, refused, rest []Notice
	online, refused, v.notices = v.Conn.SubscribeNotices(v.Ctx)
	feed := v.feed() // before any wait, because a request may come as soon as the alias is online
	online, refused, rest = v.gather(online, refused)
	if len(online)+len(refused) == 0 {
		if v.Ctx.Err() != nil {
			return v.Session.Exit(cli.ExitFailure)
		}
		var help strings.Builder
		root := v.root(v.front())
		root.SetOut(&help)
		_ = root.Help()
		for line := range strings.Lines(help.String()) {
			v.line(strings.TrimRight(line, "\r\n"))
		}
		return cli.ExitFailure
	}
	v.line(cli.ConnectedLine(v.Site.Base.Hostname()))
	for _, n := range online {
		v.online(n)
	}
	v.tell(refused)
	if len(online) == 0 {
		if slices.ContainsFunc(refused, func(n Notice) bool { return n.Code != relay.CodeNotFound }) {
			return cli.ExitFailure
		}
		return cli.ExitTaken
	}
	v.line(cli.Disconnect)
	for _, n := range online {
		v.queued(n)
	}
	v.tell(rest)
	return v.follow(feed)
}

// line adds a line to the output. It never blocks.
func (v *live) line(text string) { v.out.Put(text, len(text)) }

// print starts to write the lines to stdout. The returned function end stops the writing, after a short wait
// for a peer that does not read.
func (v *live) print() (end func()) {
	written := make(chan struct{})
	v.Session.Go("session output", func() {
		defer close(written)
		for {
			waiting, lost, ended := v.out.Take()
			if lost > 0 {
				waiting = append(waiting, fmt.Sprintf("… %d lines dropped", lost))
			}
			switch {
			case len(waiting) > 0:
				if _, err := io.WriteString(v.Stdout, strings.Join(waiting, "\n")+"\n"); err != nil {
					return
				}
			case ended:
				return
			default:
				<-v.out.Wake
			}
		}
	})
	return func() {
		v.out.End()
		select {
		case <-written:
		case <-time.After(endTimeout):
		}
	}
}

// gather waits for the results of the forwards that were requested together with the session. The result rest has all
// other notices that arrive meanwhile.
func (v *live) gather(online, refused []Notice) (on, off, rest []Notice) {
	begun, quiet := time.Now(), time.NewTimer(noMore)
	defer quiet.Stop()
	for {
		select {
		case <-v.notices.Wake:
			all, _, _ := v.notices.Take()
			for _, n := range all {
				switch n.Kind {
				case relay.NoticeOnline:
					online = append(online, n)
				case relay.NoticeRefused:
					refused = append(refused, n)
				default:
					rest = append(rest, n)
				}
			}
			quiet.Reset(noMore)
		case <-quiet.C:
			some := len(online)+len(refused) > 0
			if (some || time.Since(begun) >= v.FirstForward) && !v.Conn.RequestsPending() {
				return online, refused, rest
			}
			quiet.Reset(noMore)
		case <-v.Ctx.Done():
			return online, refused, rest
		}
	}
}

// follow prints requests and notices until the session ends. If the feed ends, follow continues without it, and
// subscribes to it again after FeedRetry.
func (v *live) follow(feed <-chan []relay.FeedItem) int {
	var retry <-chan time.Time
	for {
		if feed == nil && retry == nil {
			retry = time.After(v.FeedRetry)
		}
		select {
		case <-v.notices.Wake:
			all, _, _ := v.notices.Take()
			v.tell(all)
		case items, ok := <-feed:
			if !ok {
				feed = nil
				continue
			}
			v.show(items)
		case <-retry:
			if retry, feed = nil, v.feed(); feed != nil {
				v.line(requestsMissed)
			}
		case key := <-v.Keys:
			switch {
			case key == "q":
				return cli.ExitOK
			case strings.EqualFold(key, "r"):
				v.release()
			}
		case <-v.Ctx.Done():
			all, _, _ := v.notices.Take()
			v.tell(all)
			return v.Session.Exit(cli.ExitOK)
		}
	}
}

// show prints the ended attempts of the connection's aliases. If some may be missing, it first prints
// requestsMissed, but only once until the next attempt: while Postgres is unavailable, every change at another
// node may cause a resync.
func (v *live) show(items []relay.FeedItem) {
	for _, item := range items {
		if item.Name == "resync" && !v.missed {
			v.missed = true
			v.line(requestsMissed)
		}
		if item.Name != "attempt" || !v.Conn.Holds(item.Alias) {
			continue
		}
		if e, a := v.log.Take(item.Name, item.Data); a != nil {
			v.missed = false
			v.line(v.printer.EventText(record.AttemptLine(e, a)))
			if w := e.AddressRefused(); w != nil && !v.hostWarned {
				v.hostWarned = true // the warning is printed once per session
				v.line("warning: " + record.SafeText(w.Message))
			}
		}
	}
}

// release delivers the events that were queued while the aliases of this connection were offline.
func (v *live) release() {
	api := v.api()
	defer api.Close()
	for _, alias := range v.Conn.Attached() {
		released := &record.Released{}
		ctx, cancel := v.ask()
		err := api.Decode(ctx, http.MethodPost, "/aliases/"+url.PathEscape(alias)+"/replay-queued", nil, released)
		cancel()
		if err != nil {
			v.line(record.SafeText("replay-queued " + alias + ": " + err.Error()))
		} else {
			v.line(cli.ReleasedText(released))
		}
	}
}

// online prints the lines about an alias, once for each alias. It returns false if they were printed before.
func (v *live) online(n Notice) bool {
	if v.shown[n.Alias] {
		return false
	}
	v.shown[n.Alias] = true
	for _, line := range cli.OnlineLines(n.Alias, v.Site.AliasURL(n.Alias), cmp.Or(n.Target, "as given in your -R")) {
		v.line(line)
	}
	return true
}

func (v *live) queued(n Notice) {
	ctx, cancel := v.ask()
	defer cancel()
	st, err := v.Tunnels.Status(ctx, []relay.Alias{*n.Of})
	if err == nil && len(st) == 1 && st[0].QueuedEvents > 0 {
		v.line(cli.QueuedLine(n.Alias, st[0].QueuedEvents))
	}
}

func (v *live) tell(notices []Notice) {
	for _, n := range notices {
		switch n.Kind {
		case relay.NoticeOnline:
			if v.online(n) {
				v.queued(n)
			}
		case relay.NoticeRefused:
			v.line(fmt.Sprintf("Alias %s was refused: %s", cmp.Or(n.Alias, "(none)"), n.Message))
		case relay.NoticeOffline:
			delete(v.shown, n.Alias)
			v.line("Alias " + n.Alias + " is offline: " + cmp.Or(n.Message, "its forward was canceled"))
		case relay.NoticeSuperseded:
			v.line("Alias " + n.Alias + ": " + n.Message)
		case relay.NoticeRevoked:
			delete(v.shown, n.Alias)
			v.line(n.Message)
		case relay.NoticeStopping, relay.NoticeMoving:
			v.line(n.Message)
		}
	}
}

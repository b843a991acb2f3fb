package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"relay"
	"relay/client"
	"relay/record"
)

func (p *program) events() *cobra.Command {
	c := &cobra.Command{Use: "events ALIAS", Short: eventsShort, Long: eventsLong, Example: eventsExample}
	filter := addFilter(c)
	n := c.Flags().IntP("count", "n", 20, flagCount)
	follow := c.Flags().BoolP("follow", "f", false, flagFollow)
	ask := p.ask(c,
		func(ctx context.Context, api *client.API, _ []string, out io.Writer) error {
			if *follow {
				return api.Follow(ctx, filter.query, *n, p.say, out)
			}
			return api.Events(ctx, filter.query, *n, out)
		},
		decoded(func(w *printer, e *record.Summary) error {
			if *follow && e.State == relay.StateDelivering {
				return nil // another line follows when it ends
			}
			return w.line(record.EventLine(e).String())
		}))
	ask.PreRunE = func(*cobra.Command, []string) error {
		if *n < 1 || *n > 200 {
			return usage("-n is 1 to 200, not %d", *n)
		}
		return nil
	}
	return ask
}

func (p *program) show() *cobra.Command {
	c := &cobra.Command{Use: "show ID", Short: showShort, Example: showExample, Args: oneArg("event id")}
	return p.ask(c, getting(func(args []string) string { return "/events/" + url.PathEscape(args[0]) }), decoded(func(w *printer, e *record.Event) error { return w.text(record.EventText(e)) }))
}

func (p *program) diff() *cobra.Command {
	c := &cobra.Command{Use: "diff A B", Short: diffShort, Long: diffLong, Example: diffExample, Args: twoArgs("event ids")}
	part := c.Flags().String("part", "", flagPart)
	ask := p.ask(c,
		getting(func(args []string) string {
			query := url.Values{"left": args[:1], "right": args[1:]}
			if *part != "" {
				query.Set("part", *part)
			}
			return "/diff?" + query.Encode()
		}),
		decoded(func(w *printer, d *record.Diff) error { return w.text(record.DiffLines(d)) }))
	ask.PreRunE = func(*cobra.Command, []string) error {
		if *part != "" && *part != record.DiffRequest && *part != record.DiffResponse {
			return usage("--part is request or response, not %q", *part)
		}
		return nil
	}
	return ask
}

func (p *program) replay() *cobra.Command {
	c := &cobra.Command{Use: "replay ID", Short: replayShort, Example: replayExample, Args: oneArg("event id")}
	return p.ask(c,
		func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
			return api.Replay(ctx, args[0], out)
		},
		decoded(showReplay))
}

func (p *program) mark() *cobra.Command {
	c := &cobra.Command{Use: "mark ID", Short: markShort, Long: markLong, Example: markExample, Args: oneArg("event id")}
	values := map[string]any{
		"pinned": c.Flags().Bool("pinned", false, flagPinned), "label": c.Flags().String("label", "", flagLabel), "note": c.Flags().String("note", "", flagNote),
	}
	ask := p.ask(c,
		func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
			changes := map[string]any{}
			for name, value := range values {
				if c.Flags().Changed(name) {
					changes[name] = value
				}
			}
			return api.Call(ctx, http.MethodPatch, "/events/"+url.PathEscape(args[0]), changes, out)
		},
		decoded(func(w *printer, e *record.Event) error {
			return w.line(strings.TrimSpace(e.ID + "  " + record.MarkText(&e.Summary)))
		}))
	ask.PreRunE = func(*cobra.Command, []string) error {
		for name := range values {
			if c.Flags().Changed(name) {
				return nil
			}
		}
		return usage(needsMark)
	}
	return ask
}

func (p *program) share() *cobra.Command {
	c := &cobra.Command{Use: "share ID", Short: shareShort, Long: shareLong, Example: shareExample, Args: oneArg("event id")}
	expires := c.Flags().String("expires", "7d", flagExpires)
	view := c.Flags().Bool("view", false, flagView)
	ask := p.ask(c,
		func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
			wanted := map[string]any{"expiresIn": *expires, "view": *view}
			if *expires == "never" {
				wanted["expiresIn"] = nil
			}
			return api.Call(ctx, http.MethodPost, "/events/"+url.PathEscape(args[0])+"/shares", wanted, out)
		},
		decoded(func(w *printer, s *record.Share) error {
			return errors.Join(w.line(s.URL), w.line(shareReplay(s.ReplayURL)), w.line(shareEnds(s.ExpiresAt)))
		}))
	ask.PreRunE = func(*cobra.Command, []string) error {
		if *expires == "never" {
			return nil
		}
		if d, err := relay.ParseDuration(*expires); err != nil || d <= 0 {
			return usage("--expires is a duration above 0 such as 12h or 7d, or never, not %q", *expires)
		}
		return nil
	}
	return ask
}

// object writes a value as JSON on a line of its own.
func (w *printer) object(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return w.json(raw)
}

// showReplay shows the last attempt, which is the replay.
func showReplay(w *printer, e *record.Event) error {
	if len(e.Attempts) == 0 {
		return w.line(record.EventLine(&e.Summary).String())
	}
	last := &e.Attempts[len(e.Attempts)-1]
	if last.State == relay.StateQueued {
		return w.line(isQueued(e.ID))
	}
	if last.State == relay.StateDelivering {
		return w.line(e.ID + " is " + last.State)
	}
	return w.line(record.AttemptLine(&e.Summary, last).String())
}

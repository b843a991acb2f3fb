package main

import (
	"cmp"
	"context"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/client"
	"relay/record"
)

// maxTimeout bounds --timeout of wait.
const maxTimeout = time.Hour

func (p *program) wait() *cobra.Command {
	c := &cobra.Command{Use: "wait ALIAS", Short: waitShort, Long: waitLong, Example: waitExample}
	filter := addFilter(c)
	timeout := c.Flags().String("timeout", "30s", flagTimeout)
	var limit time.Duration
	ask := p.ask(c,
		func(ctx context.Context, api *client.API, _ []string, out io.Writer) error {
			return api.Wait(ctx, filter.query, limit, out)
		},
		decoded(func(w *printer, e *record.Summary) error { return w.line(record.EventLine(e).String()) }))
	ask.PreRunE = func(*cobra.Command, []string) (err error) {
		if limit, err = relay.ParseDuration(*timeout); err != nil || limit <= 0 || limit > maxTimeout {
			return usage("--timeout is a duration above 0 such as 30s or 5m, at most 1h, not %q", *timeout)
		}
		return nil
	}
	return ask
}

// pathPrefix completes a path prefix that a person typed: hook means /hook.
func pathPrefix(typed string) (string, error) {
	if typed == "" || strings.ContainsAny(typed[:1], "/?*") {
		return typed, nil
	}
	if u, err := url.Parse(typed); err == nil && u.Host != "" {
		err := usage("--path is what the path starts with, not %q", typed)
		return "", err.WithHint("did you mean --path %s", cmp.Or(u.RequestURI(), "/"))
	}
	return "/" + typed, nil
}

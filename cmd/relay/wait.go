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
	c := &cobra.Command{Use: "wait ALIAS", Short: waitShort, Long: waitLong, Example: waitExample, Args: oneArg("alias")}
	path := c.Flags().String("path", "", flagPath)
	method := c.Flags().String("method", "", flagMethod)
	timeout := c.Flags().String("timeout", "30s", flagTimeout)
	var limit time.Duration
	ask := p.ask(c,
		func(ctx context.Context, api *client.API, args []string, out io.Writer) error {
			query := url.Values{"alias": {client.NormalAlias(args[0])}}
			for name, value := range map[string]string{"path": *path, "method": strings.ToUpper(*method)} {
				if value != "" {
					query.Set(name, value)
				}
			}
			return api.Wait(ctx, query, limit, out)
		},
		decoded(func(w *printer, e *record.Summary) error { return w.line(eventLine(e)) }))
	ask.PreRunE = func(*cobra.Command, []string) (err error) {
		if *path, err = pathPrefix(*path); err != nil {
			return err
		}
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

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

func (c *program) supportCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "support FILE", Short: "write a support report to a new text file, without secrets", Args: cli.Takes("FILE", 1, 1),
		Long: `Writes version, settings, the checks of doctor, counts and the last lines of the log to FILE
(mode 0600; - is stdout). Secrets are masked. The lines name aliases, accounts and addresses:
read the file before you pass it on. Run it as root or as the user that runs relayd.`,
		Example: "  relayd support relay-support.txt",
	}
	return c.withSettings(cmd, false, func(ctx context.Context, cfg Config, list []*setting, args []string) error {
		if err := checkServedStore(cfg); err != nil {
			return err
		}
		report := c.supportReport(ctx, cfg, list)
		if args[0] == "-" {
			_, err := c.stdout.Write(report)
			return err
		}
		f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = f.Write(report)
		if err = errors.Join(err, f.Close()); err == nil {
			c.report("written to %s; read it before you pass it on", args[0])
		}
		return err
	})
}

// supportReport returns the text of the support report. If a part fails, the report has the error instead of
// that part.
func (c *program) supportReport(ctx context.Context, cfg Config, list []*setting) []byte {
	var b bytes.Buffer
	section := func(name string) { fmt.Fprintf(&b, "\n== %s\n\n", name) }
	fmt.Fprintf(&b, "relayd %s\nwritten %s by user %d on %d processors\n",
		relay.ThisBuild(), time.Now().UTC().Format(time.RFC3339), os.Getuid(), runtime.NumCPU())
	section("settings")
	_ = printSettings(&b, false, effective(cfg, list))
	section("doctor")
	_ = printFindings(&b, false, c.runChecks(ctx, cfg, list))
	for _, part := range []struct{ name, path string }{
		{"counts", "/debug/stats"}, {"metrics", "/metrics"}, {"log", "/debug/log"},
	} {
		section(part.name)
		text := []byte("the admin listener is off")
		if cfg.AdminAddr != "" {
			asked, cancel := context.WithTimeout(ctx, probeTimeout)
			var err error
			if text, err = getLocal(asked, cfg, nil, "http://"+dialable(cfg.AdminAddr)+part.path); err != nil {
				text = []byte(err.Error())
			}
			cancel()
		}
		for line := range bytes.Lines(text) {
			b.WriteString(record.SafeText(strings.TrimRight(string(line), "\r\n")) + "\n")
		}
	}
	return redact(b.Bytes(), cfg)
}

// tokenText matches tokens and secret links.
var tokenText = regexp.MustCompile(`\brly_[\w-]+|/(login|invite|link|share|s)/[\w-]{20,}`)

// redact masks secrets that parts of the report may hold by mistake.
func redact(report []byte, cfg Config) []byte {
	text := tokenText.ReplaceAllString(string(report), hidden)
	for _, secret := range secretsOf(cfg) {
		if len(secret) < 8 { // a short secret may be a common word, so it is masked only as the password in an address
			text = strings.ReplaceAll(text, ":"+secret+"@", ":"+hidden+"@")
			continue
		}
		text = strings.ReplaceAll(text, secret, hidden)
	}
	return []byte(text)
}

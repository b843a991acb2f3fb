package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"relay"
	"relay/cli"
	"relay/record"
)

func (c *program) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "check store, disk, keys, ports and addresses; exit 1 when something fails", Args: cli.Takes("", 0, 0),
		Long: `Checks the set-up and changes nothing. Each line is a check, its verdict (ok, warn, fail),
the reason, and what to do about it. If the server is running, doctor also tries the public
addresses, as a caller would.`,
	}
	asJSON := jsonFlag(cmd)
	return c.withSettings(cmd, false, func(ctx context.Context, cfg Config, settings []*setting, _ []string) error {
		list := c.runChecks(ctx, cfg, settings)
		if err := printFindings(c.stdout, *asJSON, list); err != nil {
			return err
		}
		failed := slices.DeleteFunc(list, func(f relay.Finding) bool { return f.Verdict != relay.VerdictFail })
		if len(failed) > 0 {
			return fmt.Errorf("%s failed; the last column says what to do", record.Count(len(failed), "check", "checks"))
		}
		return nil
	})
}

func printFindings(w io.Writer, asJSON bool, list []relay.Finding) error {
	return printRows(w, asJSON, "CHECK\tVERDICT\tREASON\tFIX", list, func(f relay.Finding) []string {
		return []string{f.Check, f.Verdict, f.Reason, cmp.Or(f.Fix, "-")}
	})
}

const probeTimeout = 10 * time.Second // long enough for a relay or a database on a busy machine

// examination is one run of the checks, with the facts that earlier checks found for later ones.
type examination struct {
	*program
	cfg      Config
	settings []*setting
	site     relay.Site // site of the running server, or of the settings
	list     []relay.Finding

	served   bool     // false = doctor knows that no server uses the store
	answers  bool     // a relay answers at one of the listeners
	hostKeys []string // fingerprints of the keys that the relay shows
	versions int      // number of versions among the live nodes; 0 = unknown
}

func (x *examination) add(list ...relay.Finding) { x.list = append(x.list, list...) }

// runChecks runs the checks and returns their findings.
func (c *program) runChecks(ctx context.Context, cfg Config, settings []*setting) []relay.Finding {
	x := &examination{program: c, cfg: cfg, settings: settings, site: knownSite(cfg)}
	x.add(checkDataDir(cfg))
	x.add(checkOwners(cfg)...)
	x.add(checkReadable(cfg)...)
	x.checkHostKeys()
	if err := checkServedStore(cfg); err != nil {
		reason, fix := hintOf(err)
		x.add(finding("served store", relay.VerdictFail, fix, "%s", reason))
		return x.list // the other checks would use the wrong store
	}
	x.checkStore(ctx)
	x.add(checkSpool(cfg)...)
	x.checkListeners(ctx)
	x.checkServer()
	x.checkLoaded()
	x.checkWhichStore()
	if cfg.TLS == "files" {
		x.add(checkCertFiles(cfg))
	} else if cfg.TLS == "acme" && cfg.DatabaseURL == "" {
		x.add(checkCertFolder(cfg))
	}
	x.add(checkProxies(cfg)...)
	x.checkBase(ctx)
	x.checkAliasDomain(ctx)
	x.checkPublicSSH(ctx)
	x.add(checkSite(cfg))
	return x.list
}

func passed(check, format string, args ...any) relay.Finding {
	return finding(check, relay.VerdictOK, "", format, args...)
}

func finding(check, verdict, fix, format string, args ...any) relay.Finding {
	f := relay.Findingf(verdict, fix, format, args...)
	f.Check = check
	return f
}

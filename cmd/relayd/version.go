package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"
)

func (c *cli) versionCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "version", Short: "print the version", Args: exactly()}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(*cobra.Command, []string) error {
		platform := runtime.GOOS + "/" + runtime.GOARCH
		if *asJSON {
			return printJSON(c.stdout, map[string]string{
				"name": "relayd", "version": buildVersion(), "go": runtime.Version(), "platform": platform,
			})
		}
		_, err := fmt.Fprintf(c.stdout, "relayd %s (%s %s)\n", buildVersion(), runtime.Version(), platform)
		return err
	}
	return cmd
}

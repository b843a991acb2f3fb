package relay

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// The linker sets these variables (-X relay.version=… -X relay.commit=… -X relay.date=…); see the
// Makefile and .goreleaser.yaml.
var version, commit, date string

// Build identifies a build of Relay.
type Build struct {
	Version  string `json:"version"`          // such as v1.2.0; "dev" if nothing was recorded
	Commit   string `json:"commit,omitempty"` // "" = not recorded
	Date     string `json:"date,omitempty"`   // time of the commit, RFC 3339
	Go       string `json:"go"`
	Platform string `json:"platform"` // such as linux/amd64
}

// ThisBuild returns the build that the linker set, or else the build that the go command recorded.
func ThisBuild() Build {
	b := Build{Version: version, Commit: commit, Date: date, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if info, ok := debug.ReadBuildInfo(); ok {
		recorded := map[string]string{}
		for _, s := range info.Settings {
			recorded[s.Key] = s.Value
		}
		b.Version = cmp.Or(b.Version, strings.TrimPrefix(info.Main.Version, "(devel)"))
		b.Commit = cmp.Or(b.Commit, recorded["vcs.revision"])
		b.Date = cmp.Or(b.Date, recorded["vcs.time"])
	}
	b.Version = cmp.Or(b.Version, "dev")
	return b
}

// String returns one line with version, commit, date, Go version and platform.
func (b Build) String() string {
	var of string
	if b.Commit != "" {
		of = "commit " + b.Commit[:min(len(b.Commit), 12)] + ", "
	}
	if b.Date != "" {
		of += b.Date + ", "
	}
	return fmt.Sprintf("%s (%s%s %s)", b.Version, of, b.Go, b.Platform)
}

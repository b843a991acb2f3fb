package tools

import (
	"os"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// goreleaser understands every key of .goreleaser.yaml, and the scripts that it names are
// there.
func TestReleaseConfiguration(t *testing.T) {
	project, err := config.Load("../.goreleaser.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(project.Builds) != 2 || len(project.Archives) != 2 {
		t.Errorf("%d builds and %d archives", len(project.Builds), len(project.Archives))
	}
	for _, script := range []string{"generated", "package", "package-linux", "sbom"} {
		if info, err := os.Stat("../scripts/" + script); err != nil || info.Mode()&0o111 == 0 {
			t.Errorf("scripts/%s: %v", script, err)
		}
	}
}

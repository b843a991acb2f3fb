package tools

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

// TestReleaseConfiguration: the program goreleaser accepts every key of .goreleaser.yaml, and the named
// scripts exist.
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

// TestPackageScripts: for the arguments of each package manager, the package scripts start, restart, stop or
// disable relayd, or do nothing.
func TestPackageScripts(t *testing.T) {
	t.Parallel()
	const deb, systemd, openrc = "deb-systemd-helper deb-systemd-invoke systemctl", "systemctl", "rc-service rc-update"
	for _, tc := range []struct{ programs, script, args, want string }{
		{deb, "postinstall.sh", "configure", "start relayd.service"},
		{deb, "postinstall.sh", "configure 1.0.0", "try-restart relayd.service"},
		{deb, "postinstall.sh", "abort-upgrade 1.1.0", ""},
		{deb, "preremove.sh", "upgrade 1.1.0", ""},
		{deb, "preremove.sh", "remove", "stop relayd.service"},
		{deb, "postremove.sh", "upgrade 1.1.0", ""},
		{systemd, "postinstall.sh", "1", "preset relayd.service"},
		{systemd, "postinstall.sh", "2", "try-restart relayd.service"},
		{systemd, "preremove.sh", "1", ""},
		{systemd, "preremove.sh", "0", "disable --now relayd.service"},
		{systemd, "postremove.sh", "1", ""},
		{openrc, "postinstall.sh", "1.0.0-r0", ""},
		{openrc, "postinstall.sh", "1.1.0-r0 1.0.0-r0", "rc-service --ifstarted relayd restart"},
		{openrc, "preremove.sh", "1.1.0-r0", "rc-service --ifstarted relayd stop\nrc-update --quiet --all delete relayd"},
		{openrc, "postremove.sh", "1.1.0-r0", ""},
	} {
		folder := t.TempDir()
		log := filepath.Join(folder, "log")
		for _, program := range strings.Fields(tc.programs + " getent chgrp install stat") {
			if err := os.WriteFile(filepath.Join(folder, program), []byte("#!/bin/sh\necho \"${0##*/} $*\" >>"+log+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		text, err := os.ReadFile("../deploy/package/" + tc.script)
		if err != nil {
			t.Fatal(err)
		}
		// The scripts assume that systemd runs if its folder exists.
		cmd := exec.Command("/bin/sh", append([]string{"-c", strings.ReplaceAll(string(text), "/run/systemd/system", folder), "script"}, strings.Fields(tc.args)...)...)
		cmd.Env = []string{"PATH=" + folder}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v: %s", tc.script, tc.args, err, out)
		}
		did, _ := os.ReadFile(log)
		changes := regexp.MustCompile(`(?m)^.*\b(start|stop|restart|try-restart|preset|disable|delete) .*$|^rc-.*$`).FindAllString(string(did), -1)
		if got := strings.Join(changes, "\n"); !strings.HasSuffix(got, tc.want) || (got == "") != (tc.want == "") {
			t.Errorf("%s: %s %s: %q, want %q", tc.programs, tc.script, tc.args, got, tc.want)
		}
	}
}

package pgtest

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// initdbOptions are the options of every cluster.
var initdbOptions = []string{"-U", "relay", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"}

// makeCluster makes the data folder of the server. initdb takes seconds, so it runs once for each
// machine: its result is kept as a template in the user's cache folder, and each cluster is a copy of
// the template. The clusters of one machine therefore have the same system identifier, which only
// replication uses. Without a template that can be copied, initdb makes the cluster.
func (s *Server) makeCluster() error {
	template := s.template()
	if template != "" {
		if err := copyTree(s.data(), template, s.own, false); err == nil {
			return nil
		}
		if err := os.RemoveAll(s.data()); err != nil {
			return fmt.Errorf("remove the rest of a copy: %w", err)
		}
	}
	cmd := exec.Command(filepath.Join(s.bin, "initdb"), append([]string{"-D", s.data()}, initdbOptions...)...)
	s.as(cmd)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	if template != "" {
		keepTemplate(s.data(), template) // the template only saves time: without it the next test runs initdb again
	}
	return nil
}

// template returns the path of the template for this Postgres version and these options; empty if
// there is no cache folder.
func (s *Server) template() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	version, err := exec.Command(filepath.Join(s.bin, "postgres"), "--version").Output()
	if err != nil {
		return ""
	}
	key := sha256.Sum256([]byte(s.bin + "\n" + string(version) + strings.Join(initdbOptions, " ")))
	return filepath.Join(cache, "relay-tests", fmt.Sprintf("postgres-%x", key[:8]))
}

// keepTemplate copies a new cluster into the cache. If several test processes copy one at once, the first
// rename wins.
func keepTemplate(cluster, template string) {
	if err := os.MkdirAll(filepath.Dir(template), 0o700); err != nil {
		return
	}
	dir, err := os.MkdirTemp(filepath.Dir(template), "new-")
	if err != nil {
		return
	}
	defer os.RemoveAll(dir)
	whole := filepath.Join(dir, "data")
	ours := func(string) error { return nil }
	if err := copyTree(whole, cluster, ours, true); err != nil {
		return
	}
	_ = os.Rename(whole, template) // fails if another process was first
}

// copyTree copies a folder, and calls own with each path that it has made. If sync is set, each file is on
// the disk before copyTree returns, so that a template survives a crash of the machine.
func copyTree(to, from string, own func(path string) error, sync bool) error {
	return filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		target := filepath.Join(to, rel)
		if d.IsDir() {
			err = os.Mkdir(target, 0o700)
		} else {
			err = copyFile(target, path, sync)
		}
		if err != nil {
			return err
		}
		return own(target)
	})
}

func copyFile(to, from string, sync bool) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err == nil && sync {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// own gives a path to the user that the server runs as.
func (s *Server) own(path string) error {
	if s.who == nil {
		return nil
	}
	uid, _ := strconv.Atoi(s.who.Uid)
	gid, _ := strconv.Atoi(s.who.Gid)
	return os.Chown(path, uid, gid)
}

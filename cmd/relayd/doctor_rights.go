package main

import (
	"io/fs"
	"os"
	"path/filepath"

	"relay"
)

// checkReadable checks that the owner of the data dir can read the other files that the settings name. Root
// can read them in any case, but the service runs as the owner and would fail to start.
func checkReadable(cfg Config) (list []relay.Finding) {
	dir, err := os.Stat(cfg.DataDir)
	if err != nil {
		return nil // checkDataDir reports this error
	}
	owner, known := ownerOf(dir)
	if !known || owner == 0 || os.Geteuid() != 0 {
		return nil // root as the owner can read every file; without root rights, the other checks have tried to read the files
	}
	groups := groupsOf(owner)
	files := hostKeyFiles(cfg)
	if cfg.TLS == "files" {
		files = append(files, cfg.TLSCert, cfg.TLSKey)
	}
	for _, file := range files {
		if place := lockedPlace(file, owner, groups); place != "" {
			list = append(list, finding("files", relay.VerdictWarn, "let that user read it: chgrp and chmod g+rx for a folder, g+r for a file, or copy the file to where it may. If an access control list or the unit of the service lets it, all is well",
				"by its mode and groups, the user that owns %s may not read %s, for the rights of %s", cfg.DataDir, file, place))
		}
	}
	return list
}

// lockedPlace returns the folder or file whose permissions prevent a user from reading a file; "" = none.
func lockedPlace(file string, owner uint32, groups []uint32) string {
	file, err := filepath.Abs(file)
	if err != nil {
		return ""
	}
	for _, path := range []string{filepath.Dir(file), resolved(file)} { // file may be a link, so the folder of the link is checked, and the target of the link
		var way []string
		for at := path; ; at = filepath.Dir(at) {
			way = append([]string{at}, way...)
			if at == filepath.Dir(at) {
				break
			}
		}
		for _, at := range way {
			info, err := os.Stat(at)
			if err != nil {
				break // another check reports that the file is missing
			}
			want := fs.FileMode(0o4)
			if info.IsDir() {
				want = 0o1
			}
			if !mayUse(info, want, owner, groups) {
				return at
			}
		}
	}
	return ""
}

// resolved returns the path without symbolic links.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

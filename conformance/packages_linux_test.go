package conformance

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// packageContent is the content of a package: the mode and hash of each file by its path, and the text
// of each script by its name in dpkg.
type packageContent struct{ files, scripts map[string]string }

// onlyIn are the files that only one kind of package has, or has at another path.
var onlyIn = map[string][]string{
	"deb": {"/lib/systemd/system/relayd.service", "/usr/share/zsh/vendor-completions/_*", "/usr/share/doc/*/changelog.gz", "/usr/share/lintian/overrides/*"},
	"rpm": {"/usr/lib/systemd/system/relayd.service", "/usr/share/zsh/site-functions/_*"},
	"apk": {"/etc/init.d/relayd", "/usr/share/zsh/site-functions/_*"},
}

// comparePackages compares the rpm and the apk of each program with its deb: the files, their modes and
// content, and the scripts. They must be equal, except for the files in onlyIn.
func comparePackages(t *testing.T, folder string) {
	for _, program := range []string{"relay", "relayd"} {
		found := map[string]packageContent{}
		for kind, read := range map[string]func([]byte) (packageContent, error){"deb": readDeb, "rpm": readRPM, "apk": readAPK} {
			names, err := filepath.Glob(filepath.Join(folder, program+"?1.0.0*."+kind))
			if err != nil || len(names) != 1 {
				t.Fatalf("the packages are %q, %v", names, err)
			}
			data, err := os.ReadFile(names[0])
			if err != nil {
				t.Fatal(err)
			}
			c, err := read(data)
			if err != nil {
				t.Fatalf("%s: %v", names[0], err)
			}
			for _, pattern := range onlyIn[kind] {
				own := 0
				for name := range c.files {
					if ok, _ := path.Match(pattern, name); ok {
						own++
						delete(c.files, name)
					}
				}
				if own != 1 && (program == "relayd" || !strings.Contains(pattern, "relayd")) {
					t.Errorf("%d files of %s match %s", own, names[0], pattern)
				}
			}
			if upgrade := c.scripts["upgrade"]; kind == "apk" && upgrade != c.scripts["postinst"] {
				t.Errorf("%s: after an upgrade another script runs than after an installation: %q", names[0], upgrade)
			}
			delete(c.scripts, "upgrade")
			found[kind] = c
		}
		if deb := found["deb"]; len(deb.files) < 8 || (len(deb.scripts) > 0) != (program == "relayd") {
			t.Errorf("the deb of %s has the files %v and %d scripts", program, deb.files, len(deb.scripts))
		}
		for _, kind := range []string{"rpm", "apk"} {
			if got, want := found[kind], found["deb"]; !maps.Equal(got.files, want.files) {
				t.Errorf("%s: the files of the %s are %v,\nthose of the deb %v", program, kind, got.files, want.files)
			} else if !maps.Equal(got.scripts, want.scripts) {
				t.Errorf("%s: the scripts of the %s differ from those of the deb", program, kind)
			}
		}
	}
}

// scriptNames maps the path of a script in the archive of a deb or apk to its name in packageContent.
var scriptNames = map[string]string{
	"/postinst": "postinst", "/prerm": "prerm", "/postrm": "postrm",
	"/.post-install": "postinst", "/.post-upgrade": "upgrade", "/.pre-deinstall": "prerm", "/.post-deinstall": "postrm",
}

// add adds the regular files of a tar archive to c.
func (c *packageContent) add(archive io.Reader) error {
	for r := tar.NewReader(archive); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag == tar.TypeReg {
			if err := c.addFile(path.Join("/", h.Name), h.Mode, r); err != nil {
				return err
			}
		}
	}
}

func (c *packageContent) addFile(name string, mode int64, from io.Reader) error {
	content, err := io.ReadAll(from)
	if script := scriptNames[name]; script != "" {
		c.scripts[script] = string(content)
	} else if c.files != nil && !strings.HasPrefix(name, "/.") {
		c.files[name] = fmt.Sprintf("%04o %x", mode&0o7777, sha256.Sum256(content))
	}
	return err
}

// readDeb reads the ar archive of a deb, which holds two tar archives.
func readDeb(data []byte) (c packageContent, err error) {
	c = packageContent{files: map[string]string{}, scripts: map[string]string{}}
	control := packageContent{scripts: c.scripts} // control.files is dropped, because these files are not installed
	for rest := data[len("!<arch>\n"):]; len(rest) >= 60 && err == nil; {
		name, _, _ := strings.Cut(strings.TrimSpace(string(rest[:16])), "/")
		size, aerr := strconv.Atoi(strings.TrimSpace(string(rest[48:58])))
		if aerr != nil {
			return c, aerr
		}
		part := rest[60 : 60+size]
		rest = rest[60+size+size%2:]
		to, archive := map[string]*packageContent{"control.tar.gz": &control, "data.tar.gz": &c}[name], io.Reader(nil)
		if to == nil {
			continue
		}
		if archive, err = gzip.NewReader(bytes.NewReader(part)); err == nil {
			err = to.add(archive)
		}
	}
	return c, err
}

// readAPK reads the tar archives of an apk. They are compressed separately, and together form one archive.
func readAPK(data []byte) (c packageContent, err error) {
	c = packageContent{files: map[string]string{}, scripts: map[string]string{}}
	text, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return c, err
	}
	return c, c.add(text)
}

// readRPM reads the scripts from the header of an rpm, and the files from the cpio archive after the header.
// In the cpio archive, numbers are in hexadecimal digits.
func readRPM(data []byte) (c packageContent, err error) {
	c = packageContent{files: map[string]string{}, scripts: map[string]string{}}
	// An rpm begins with the lead, 96 bytes without content. A signature and the header follow, which have
	// the same format.
	rest := data[96:]
	for i := range 2 {
		entries, size := int(binary.BigEndian.Uint32(rest[8:])), int(binary.BigEndian.Uint32(rest[12:]))
		index, store := rest[16:], rest[16+16*entries:16+16*entries+size]
		for ; i == 1 && entries > 0; entries-- {
			tag, offset := binary.BigEndian.Uint32(index), binary.BigEndian.Uint32(index[8:])
			if name := map[uint32]string{1024: "postinst", 1025: "prerm", 1026: "postrm"}[tag]; name != "" {
				text, _, _ := bytes.Cut(store[offset:], []byte{0})
				c.scripts[name] = string(text)
			}
			index = index[16:]
		}
		used := cap(rest) - cap(store) + size
		if i == 0 {
			used = (used + 7) / 8 * 8 // the signature is padded to a multiple of 8 bytes
		}
		rest = rest[used:]
	}
	text, err := gzip.NewReader(bytes.NewReader(rest))
	if err != nil {
		return c, err
	}
	all, err := io.ReadAll(text)
	for err == nil {
		var field [13]int64
		for i := range field {
			field[i], _ = strconv.ParseInt(string(all[6+8*i:14+8*i]), 16, 64)
		}
		mode, size, nameLength := field[1], field[6], field[11]
		name := string(all[110 : 110+nameLength-1])
		if name == "TRAILER!!!" {
			break
		}
		begin := (110 + nameLength + 3) / 4 * 4
		if mode&0o170000 == 0o100000 {
			err = c.addFile(path.Join("/", name), mode, bytes.NewReader(all[begin:begin+size]))
		}
		all = all[(begin+size+3)/4*4:]
	}
	return c, err
}

// checkLintian runs lintian on the debs. It must report nothing except what an override explains.
func checkLintian(t *testing.T, folder string) {
	names, err := filepath.Glob(filepath.Join(folder, "*_1.0.0_*.deb"))
	if err != nil || len(names) != 2 {
		t.Fatalf("the packages are %q, %v", names, err)
	}
	slices.Sort(names)
	out, err := exec.Command("lintian", append([]string{"--allow-root", "--fail-on", "error,warning"}, names...)...).CombinedOutput()
	if err != nil || strings.Contains(string(out), "relay") {
		t.Errorf("lintian: %v\n%s", err, out)
	}
}

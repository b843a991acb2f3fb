// Command sbom writes the SBOM of a Go program, in the format CycloneDX 1.6, from the build
// information in the program itself: the modules that are linked, and no others. The same
// program gives the same bytes.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
)

type document struct {
	Format     string      `json:"bomFormat"`
	Spec       string      `json:"specVersion"`
	Version    int         `json:"version"`
	Metadata   metadata    `json:"metadata"`
	Components []component `json:"components"`
}

type metadata struct {
	Component component `json:"component"`
}

type component struct {
	Type    string `json:"type"`
	Ref     string `json:"bom-ref"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
	Hashes  []hash `json:"hashes,omitempty"`
}

type hash struct {
	Algorithm string `json:"alg"`
	Content   string `json:"content"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM FILE")
		os.Exit(2)
	}
	if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func write(program, file string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	name := filepath.Base(program)
	doc := document{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{component{
		Type: "application", Ref: info.Path, Name: name,
		Hashes: []hash{{"SHA-256", hex.EncodeToString(sum[:])}},
	}}}
	doc.Components = append(doc.Components, component{
		Type: "framework", Ref: "go", Name: "go", Version: info.GoVersion, PURL: "pkg:golang/std@" + info.GoVersion[len("go"):],
	})
	for _, m := range info.Deps {
		doc.Components = append(doc.Components, of(m))
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// of is the component of a module, or of what replaces it.
func of(m *debug.Module) component {
	if m.Replace != nil {
		m = m.Replace
	}
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	return component{Type: "library", Ref: purl, Name: m.Path, Version: m.Version, PURL: purl}
}

// Command sbom writes the SBOM of a Go program, in the format CycloneDX 1.6, from the build information in
// the program itself. It lists only the linked modules. The output depends only on the program.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// object is an object of the document; encoding/json sorts its keys.
type object = map[string]any

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
	components := []object{{
		"type": "framework", "bom-ref": "go", "name": "go", "version": info.GoVersion, "purl": "pkg:golang/std@" + info.GoVersion[len("go"):],
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		purl := "pkg:golang/" + m.Path + "@" + m.Version
		components = append(components, object{"type": "library", "bom-ref": purl, "name": m.Path, "version": m.Version, "purl": purl})
	}
	text, err := json.MarshalIndent(object{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components,
		"metadata": object{"component": object{
			"type": "application", "bom-ref": info.Path, "name": filepath.Base(program),
			"hashes": []object{{"alg": "SHA-256", "content": hex.EncodeToString(sum[:])}},
		}},
	}, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// Command ties prints figures about the dependencies between the files of a package, to compare before and
// after a change of structure. Test files are left out; generated files count for ties only.
//
//	cd tools && go run ./ties [-list] ../store ../delivery/...
//
// A file has an arrow to another file if it uses an identifier that is declared there: a function, a type, a
// method, a field, a variable or a constant of the package. Two files with an arrow between them, in either
// direction, are a tie. In an order in which each file should use only those after it, an arrow to an earlier
// file is an upward arrow. The program searches for an order with few upward arrows. The remaining ones show
// dependencies that no order can remove.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
)

func main() {
	list := flag.Bool("list", false, "also print the order, the arrows against it, and what was counted one by one")
	flag.Parse()
	if err := run(flag.Args(), *list); err != nil {
		fmt.Fprintln(os.Stderr, "ties:", err)
		os.Exit(1)
	}
}

func run(patterns []string, list bool) error {
	packages, err := load(patterns)
	if err != nil {
		return err
	}
	out := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, "package\tfiles\tlines\tties\tof\tarrows\tagainst\tlargest struct\tfields\twritten by\tfunctions\tover 40\tover 60")
	var details []string
	for _, p := range packages {
		files := layered(p.files, p.arrows)
		against := upward(files, p.arrows)
		n := len(p.files)
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%d\t%d\n", p.path, p.program, p.lines, ties(p.arrows), n*(n-1)/2, len(p.arrows),
			len(against), p.largest.name, len(p.largest.fields), len(p.writers), len(p.functions), over(p.functions, 40), over(p.functions, 60))
		if list {
			details = append(details, p.detail(files, against))
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	fmt.Print(strings.Join(details, ""))
	return nil
}

// detail returns what the counts of a package consist of: the order of the files, the upward arrows, the
// writers of the largest struct, and the functions of more than 60 lines.
func (p *pkg) detail(files []string, against []arrow) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n  order: %s\n", p.path, strings.Join(files, " "))
	for _, a := range against {
		fmt.Fprintf(&b, "  against: %s uses %s of %s\n", a.from, strings.Join(p.arrows[a], ", "), a.to)
	}
	fmt.Fprintf(&b, "  %s is written by: %s\n", p.largest.name, strings.Join(p.writers, " "))
	for _, f := range p.functions {
		if f.lines > 60 {
			fmt.Fprintf(&b, "  %d lines: %s in %s\n", f.lines, f.name, f.file)
		}
	}
	return b.String()
}

func over(functions []function, lines int) (n int) {
	for _, f := range functions {
		if f.lines > lines {
			n++
		}
	}
	return n
}

package record_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"relay"
	"relay/record"
	"relay/relaytest"
	"relay/wire"
)

// sentRequest holds a request as a program sent it: all bytes, the head and the body.
type sentRequest struct{ raw, head, body string }

// exportServer answers each request with 204 and stores it under the number in its X-Case header.
type exportServer struct {
	port string
	mu   sync.Mutex
	got  map[int]sentRequest
}

func newExportServer(t *testing.T) *exportServer {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	s := &exportServer{got: map[int]sentRequest{}}
	_, s.port, _ = net.SplitHostPort(ln.Addr().String())
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go s.serve(c)
		}
	}()
	return s
}

var caseNumber = regexp.MustCompile(`\r\nX-Case: (\d+)\r\n`)

// serve reads one request by its framing, answers it, reads the remaining bytes of the connection, and stores
// all of them.
func (s *exportServer) serve(c net.Conn) {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	var raw bytes.Buffer
	r := bufio.NewReader(io.TeeReader(c, &raw))
	var head strings.Builder
	for {
		line, err := r.ReadString('\n')
		head.WriteString(line)
		if err != nil || line == "\r\n" {
			break
		}
	}
	found := caseNumber.FindStringSubmatch(head.String())
	h, _, err := wire.Request([]byte(head.String()), wire.Limits{})
	if err != nil || found == nil {
		return
	}
	var body []byte
	switch {
	case h.Framing == relay.FramingLength:
		body = make([]byte, h.Length)
		_, _ = io.ReadFull(r, body)
	case h.Framing == relay.FramingChunked:
		body = readChunks(r)
	}
	n, _ := strconv.Atoi(found[1])
	_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
	_ = c.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.got[n] = sentRequest{raw.String(), head.String(), string(body)}
}

func readChunks(r *bufio.Reader) (body []byte) {
	for {
		line, err := r.ReadString('\n')
		size, parseErr := strconv.ParseInt(strings.TrimSpace(strings.SplitN(line, ";", 2)[0]), 16, 32)
		if err != nil || parseErr != nil {
			return body
		}
		if size == 0 {
			for line != "\r\n" && err == nil {
				line, err = r.ReadString('\n')
			}
			return body
		}
		piece := make([]byte, size+2)
		_, _ = io.ReadFull(r, piece)
		body = append(body, piece[:size]...)
	}
}

// of waits for the request of case n, because a program may end before the server has stored its
// request.
func (s *exportServer) of(n int) (sent sentRequest, ok bool) {
	ok = relaytest.Poll(5*time.Second, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		sent, ok = s.got[n]
		return ok
	})
	return sent, ok
}

func (s *exportServer) site() relay.Site {
	return relay.Site{Base: url.URL{Scheme: "http", Host: "localhost:" + s.port}, AliasDomain: "localhost"}
}

// exported is one case exported in one format.
type exported struct {
	*exportCase
	n     int
	event *relay.Event
	file  *record.Exported
}

// exportAll exports all cases in a format. It checks which cases are refused, and that each refusal names the
// export that can send them, request.raw.
func exportAll(t *testing.T, format string, site relay.Site) (list []exported) {
	t.Helper()
	refused := 0
	cases := exportCases(t)
	for n := range cases {
		c := &cases[n]
		e := c.event(t, n)
		file, err := record.Export(e, format, site, "1", time.Now(), record.MaxJSON)
		if wants := slices.Contains(strings.Fields(c.refused), format); wants != (err != nil) {
			t.Errorf("%s: %v, refused must be %v", c.name, err, wants)
		}
		if err != nil {
			refused++
			if detail := relay.AsError(err).Detail; !strings.Contains(detail, "request.raw") {
				t.Errorf("%s: %s", c.name, detail)
			}
			continue
		}
		list = append(list, exported{c, n, e, file})
	}
	t.Logf("%s: %d exported, %d refused", format, len(list), refused)
	return list
}

// TestExportsSendWhatCame runs every export with its program in an otherwise empty folder. The program must
// send the original request, as far as the format promises it, unless the export is refused.
func TestExportsSendWhatCame(t *testing.T) {
	t.Parallel()
	shells := []string{"bash", "dash"}
	if sh, err := filepath.EvalSymlinks("/bin/sh"); err != nil || filepath.Base(sh) != "dash" {
		shells = append(shells, "sh")
	}
	for _, shell := range shells {
		t.Run("curl by "+shell, func(t *testing.T) { t.Parallel(); exportsByShell(t, shell) })
	}
	t.Run("js", func(t *testing.T) {
		t.Parallel()
		exportsByProgram(t, "js", "node", "-e", `for (const f of require("fs").readdirSync(".").filter(f => f.endsWith(".test.js")).sort()) require("./" + f)`)
	})
	t.Run("python", func(t *testing.T) {
		t.Parallel()
		exportsByProgram(t, "python", "python3", "-m", "unittest", "discover", "-q")
	})
	t.Run("go", func(t *testing.T) { t.Parallel(); exportsOfGo(t) })
	t.Run("har", func(t *testing.T) { t.Parallel(); exportsByImporter(t) })
}

func exportsByShell(t *testing.T, shell string) {
	server := newExportServer(t)
	home := t.TempDir()
	if err := os.WriteFile(filepath.Join(home, ".curlrc"), []byte("ipv4\nnoproxy = \"*\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range exportAll(t, "curl", server.site()) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, x.file.Name), x.file.Body, 0o600); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), shell, x.file.Name)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CURL_HOME="+home)
		out, err := cmd.CombinedOutput()
		if len(x.body) > record.MaxBody {
			if err == nil || !strings.Contains(string(out), "nothing was sent: save the body") {
				t.Errorf("%s: %v %s", x.name, err, out)
			}
			continue
		}
		sent, ok := server.of(x.n)
		if err != nil || !ok {
			t.Errorf("%s: %v %s\n%.2000s", x.name, err, out, x.file.Body)
			continue
		}
		if was, is := sortedLines(string(x.event.Request.Head)), sortedLines(sent.head); was != is {
			t.Errorf("%s: the head\n%.2000q\nwas\n%.2000q", x.name, is, was)
		}
		if sent.body != x.body {
			t.Errorf("%s: the body\n%.2000q\nwas\n%.2000q", x.name, sent.body, x.body)
		}
	}
}

// sortedLines returns the start line and the sorted header lines of a head, for comparisons that ignore the
// order of lines and the white space around values. curl chooses both for some lines.
func sortedLines(head string) string {
	start, _, _ := strings.Cut(head, "\r\n")
	var lines []string
	for _, f := range wire.Fields([]byte(head)) {
		lines = append(lines, string(f.Name)+": "+string(f.Value))
	}
	slices.Sort(lines)
	return start + "\n" + strings.Join(lines, "\n")
}

// exportsByProgram runs all exports in one process and compares every byte of the requests.
func exportsByProgram(t *testing.T, format, program string, args ...string) {
	server := newExportServer(t)
	dir := t.TempDir()
	all := exportAll(t, format, server.site())
	for _, x := range all {
		if err := os.WriteFile(filepath.Join(dir, x.file.Name), x.file.Body, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "RELAY_TEST_ADDR=127.0.0.1:"+server.port)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%.4000s", err, out)
	}
	for _, x := range all {
		if sent, _ := server.of(x.n); sent.raw != string(x.wire(t, x.event)) {
			t.Errorf("%s: sent\n%.2000q\nwant\n%.2000q", x.name, sent.raw, x.wire(t, x.event))
		}
	}
}

// exportsOfGo compiles all exports into one program, each as its own package, and runs it, because linking
// each of them separately takes a minute.
func exportsOfGo(t *testing.T) {
	server := newExportServer(t)
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	all := exportAll(t, "go", relay.Site{})
	var imports, calls strings.Builder
	for _, x := range all {
		name := fmt.Sprintf("case%d", x.n)
		text, ok := strings.CutPrefix(string(x.file.Body[bytes.Index(x.file.Body, []byte("\npackage main\n"))+1:]), "package main\n")
		if !ok {
			t.Fatalf("%s is no program:\n%.2000s", x.name, x.file.Body)
		}
		write(name+"/export.go", "package "+name+"\n"+text+"\nfunc Run() error { return check() }\n")
		fmt.Fprintf(&imports, "\t%q\n", "exports/"+name)
		fmt.Fprintf(&calls, "\tif err := %s.Run(); err != nil {\n\t\tfmt.Println(%q, err)\n\t}\n", name, x.name)
	}
	write("go.mod", "module exports\n\ngo 1.24\n")
	write("main.go", "package main\n\nimport (\n\t\"fmt\"\n"+imports.String()+")\n\nfunc main() {\n"+calls.String()+"}\n")
	cmd := exec.CommandContext(t.Context(), "go", "run", "-trimpath", "-ldflags=-w", ".") // without the path of the folder, the compiler takes what has not changed from its cache
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "RELAY_TEST_ADDR=127.0.0.1:"+server.port, "GOFLAGS=", "GOWORK=off", "GOTOOLCHAIN=local")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("%v\n%.4000s", err, out)
	}
	for _, x := range all {
		if sent, _ := server.of(x.n); sent.raw != string(x.wire(t, x.event)) {
			t.Errorf("%s: sent\n%.2000q\nwant\n%.2000q", x.name, sent.raw, x.wire(t, x.event))
		}
	}
}

// exportsByImporter reads the archives with HAR importers and compares the requests. Importers join header
// lines of one name, encode some characters of URLs differently, and build forms anew from their fields.
func exportsByImporter(t *testing.T) {
	dir := relaytest.NodeModules(t, "testdata/importers", "read.cjs")
	all := exportAll(t, "har", relay.Site{Base: url.URL{Scheme: "http", Host: "localhost:1"}, AliasDomain: "localhost"})
	var in []json.RawMessage
	for _, x := range all {
		in = append(in, x.file.Body)
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "read.cjs")
	cmd.Dir, cmd.Stdin = dir, bytes.NewReader(text)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var read []struct {
		Fault, Method, URL, Text string
		Headers                  map[string]any
	}
	if err != nil || json.Unmarshal(out, &read) != nil || len(read) != len(all) {
		t.Fatalf("node: %v, %d answers\n%s", err, len(read), stderr.Bytes())
	}
	for i, x := range all {
		is := read[i]
		if is.Fault != "" || is.Method != x.event.Method {
			t.Errorf("%s: %+v", x.name, is)
			continue
		}
		if was := string(x.event.Target); decoded(is.URL) != decoded("http://hook.localhost:1"+was) {
			t.Errorf("%s: %q was %q", x.name, is.URL, was)
		}
		if is.Text != x.body && (!x.asForm || decoded(is.Text) != decoded(x.body)) {
			t.Errorf("%s: the body\n%.2000q\nwas\n%.2000q", x.name, is.Text, x.body)
		}
		times := map[string]int{}
		for _, f := range wire.Fields(x.event.Request.Head) {
			times[string(f.Name)]++
		}
		for _, f := range wire.Fields(x.event.Request.Head) {
			if times[string(f.Name)] == 1 && is.Headers[string(f.Name)] != string(f.Value) {
				t.Errorf("%s: %s is %q, was %q", x.name, f.Name, is.Headers[string(f.Name)], f.Value)
			}
		}
	}
}

// decoded returns a URL or a form with normalised percent-encoding.
func decoded(text string) string {
	text = strings.TrimSuffix(text, "?")
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}

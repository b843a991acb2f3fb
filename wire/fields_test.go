package wire_test

import (
	"strings"
	"testing"

	"relay/wire"
)

// list writes fields as name=value, with | between them.
func list(fields []wire.Field) string {
	var out []string
	for _, f := range fields {
		out = append(out, string(f.Name)+"="+string(f.Value))
	}
	return strings.Join(out, "|")
}

func TestFields(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, head, want string }{
		{"order and case", "GET / HTTP/1.1\r\nHost: a\r\nx-b:1\r\nX-B: \t 2 \t\r\nX-E:\r\n\r\n", "Host=a|x-b=1|X-B=2|X-E="},
		{"bare LF", "HTTP/1.1 200 OK\nA: 1\nB: 2\n\n", "A=1|B=2"},
		{"folded", "HTTP/1.1 200 OK\r\nA: 1 \r\n  2\r\n\t3 \r\nB: 4\r\n\r\n", "A=1 \r\n  2\r\n\t3|B=4"},
		{"folded empty value", "HTTP/1.1 200 OK\r\nA:\r\n \r\n  2 \r\n 3\r\n\r\n", "A=2 \r\n 3"},
		{"folded by nothing", "HTTP/1.1 200 OK\r\nA: 1\r\n  \r\nB: 2\r\n\r\n", "A=1|B=2"},
		{"folded at once", "HTTP/1.1 200 OK\r\n A: 1\r\n\r\n", " A=1"},
		{"stops at the empty line", "GET / HTTP/1.1\r\nA: 1\r\n\r\nB: 2\r\n", "A=1"},
		{"without end", "GET / HTTP/1.1\r\nA: 1\r\nB", "A=1|B="},
		{"leading empty line", "\r\nGET / HTTP/1.1\r\nA: 1\r\n\r\n", "A=1"},
		{"space before colon", "HTTP/1.1 200 OK\r\nA : 1\r\n\r\n", "A =1"},
		{"first line only", "GET / HTTP/1.1", ""},
		{"nothing", "", ""},
	} {
		if got := list(wire.Fields([]byte(c.head))); got != c.want {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestTrailers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lines, want string }{
		{"5;x=\"0\"\r\nA\r\n0\r\nX: 1\r\nY:\r\n\r\n", "X=1|Y="},
		{"000;a\r\nX: 1\r\n\r\n", "X=1"},
		{"0\r\n\r\n", ""},
		{"5\r\n", ""},
		{"", ""},
	} {
		if got := list(wire.Trailers([]byte(c.lines))); got != c.want {
			t.Errorf("%q: got %q, want %q", c.lines, got, c.want)
		}
	}
}

func TestStartLine(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ head, want string }{
		{"POST /a?b HTTP/1.1\r\nHost: a\r\n\r\n", "POST|/a?b|HTTP/1.1"},
		{"HTTP/1.1 404 Not  Found \r\n\r\n", "HTTP/1.1|404|Not  Found "},
		{"HTTP/1.1 404\n\n", "HTTP/1.1|404|"},
		{"\r\nGET / HTTP/1.0\r\n\r\n", "GET|/|HTTP/1.0"},
		{"GET", "GET||"},
		{"", "||"},
	} {
		a, b, v := wire.StartLine([]byte(c.head))
		if got := string(a) + "|" + string(b) + "|" + string(v); got != c.want {
			t.Errorf("%q: got %q, want %q", c.head, got, c.want)
		}
	}
}

func TestShownTarget(t *testing.T) {
	t.Parallel()
	for target, want := range map[string]string{
		"/a?b": "/a?b", "*": "*", "http://a.localhost/x?y": "/x?y", "HTTPS://a:1": "/", "http://a?x=1": "?x=1", "": "", "http:/": "http:/",
	} {
		if got := string(wire.ShownTarget([]byte(target))); got != want {
			t.Errorf("%q: got %q, want %q", target, got, want)
		}
	}
}

func TestSetHost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, head, value, want string }{
		{"usual", "GET / HTTP/1.1\r\nX-Host: 1\r\nHost: a.localhost\r\nHost2: 2\r\n\r\n", "127.0.0.1:3000", "GET / HTTP/1.1\r\nX-Host: 1\r\nHost: 127.0.0.1:3000\r\nHost2: 2\r\n\r\n"},
		{"spaces and case stay", "GET / HTTP/1.1\r\nhOST:  a \t\r\n\r\n", "b", "GET / HTTP/1.1\r\nhOST:  b \t\r\n\r\n"},
		{"without space", "GET / HTTP/1.1\r\nHost:a\r\n\r\n", "b", "GET / HTTP/1.1\r\nHost:b\r\n\r\n"},
		{"no host", "GET / HTTP/1.0\r\nX: 1\r\n\r\n", "b", "GET / HTTP/1.0\r\nX: 1\r\n\r\n"},
		{"absolute target stays", "GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", "b", "GET http://a/ HTTP/1.1\r\nHost: b\r\n\r\n"},
		{"no line can be put in", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", "b\r\nX: 1", "GET / HTTP/1.1\r\nHost: a\r\n\r\n"},
	} {
		head := []byte(c.head)
		got := wire.SetHost(head, c.value)
		if string(got) != c.want || string(head) != c.head {
			t.Errorf("%s: got %q, want %q; the head itself is %q", c.name, got, c.want, head)
		}
		if len(got) > 0 && &got[0] == &head[0] {
			t.Errorf("%s: no copy", c.name)
		}
	}
}

func TestAddLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ head, lines, want string }{
		{"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "X: 1\r\nY: 2\r\n", "GET / HTTP/1.1\r\nHost: a\r\nX: 1\r\nY: 2\r\n\r\n"},
		{"GET / HTTP/1.0\r\n\r\n", "X: 1\r\n", "GET / HTTP/1.0\r\nX: 1\r\n\r\n"},
		{"HTTP/1.1 200 OK\n\n", "X: 1\n", "HTTP/1.1 200 OK\nX: 1\n\n"},
		{"GET / HTTP/1.1\r\n\r\n", "", "GET / HTTP/1.1\r\n\r\n"},
	} {
		if got := string(wire.AddLines([]byte(c.head), []byte(c.lines))); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

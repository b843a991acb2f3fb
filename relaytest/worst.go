package relaytest

import (
	"bytes"
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Worst is a shape of bytes that makes, or could make, parsers, masks or views slow: a unit that is repeated
// between a beginning and an end.
type Worst struct {
	Begin, Unit, End string
	Close            string // repeated as often as Unit, after all units
}

// Bytes returns roughly n bytes of the shape. %d in a unit is replaced by the unit's number.
func (w Worst) Bytes(n int) []byte {
	times := max(1, (n-len(w.Begin)-len(w.End))/max(1, len(w.Unit)+len(w.Close)))
	if strings.Contains(w.Unit, "%d") {
		var b bytes.Buffer
		b.WriteString(w.Begin)
		for i := 0; b.Len() < n-len(w.End); i++ {
			fmt.Fprintf(&b, w.Unit, i)
		}
		b.WriteString(w.End)
		return b.Bytes()
	}
	return []byte(w.Begin + strings.Repeat(w.Unit, times) + strings.Repeat(w.Close, times) + w.End)
}

// String names the shape in the output of a failed test.
func (w Worst) String() string {
	return fmt.Sprintf("%.40q %.40q… %.40q… %.40q", w.Begin, w.Unit, w.Close, w.End)
}

// worstUnits are units that are repeated unchanged.
var worstUnits = []string{
	"&", ";", "=", "%", ",", `"`, `\`, "'", "`", "$", "#", "?", "+", ".", "/", ":", "*", "~", "-", "_", "!", "|", "@",
	"[", "{", "(", "<", "]", "}", ")", ">", "[]", "{}", "{[", `["`, `{"`, `\"`, `\\"`, `",`, `":`, "$(", "${", "{a}", "]]>",
	" ", "\t", "\r", "\n", "\r\n", " \r\n", " \r\r\n", "\t\n", " \n ", "\n\n", "\r\n\r\n", "\r\r\n", "\n\r", " ;", "; ", ", ", "a ", " a",
	"a", "A", "aA", "0", "1", "9", "-1", "1e9", "a=", "=a", "a=b&", "&a", "a;", "a,", "a:", ":a", "a.", ".a", "a-", "--", "-a", "a:b,", "a=b;",
	"\x00", "\x1b", "\x1b[", "\x7f", "\x80", "\xff", "\xc3", "\xe2\x80", "\xf0\x9f", "\ufeff", "\ufffd", "\u0301", "a\u0301", "\u202e", "\u200b", "\u2028", "é", "İ", "ſ", "世", "😀",
	"%2", "%2525", "%7B", "%00", "%u", "&amp;", "&#1;", `\u`, `\u0041`, `\ud800`, `\ud83d\ude00`, `\n`, `\x`, "{lines}", "{id}",
	"token=", "token=a&", "token=a;", "a={}&", "a=[&", "a={\"token\":1}&", "=&", "&&=", "a[b]=1&", "a[", "[a]", "k%d=%[1]d&", "k%d&",
	"a: b\r\n", "a:\r\n", ":\r\n", "a\r\n", "a: b\n", "a:b\r\n \r\n", "a:\r\n\t\r\n c\r\n", " b\r\n", "Host: a\r\n", "Content-Length: 1\r\n", "Cookie: a=b; \r\n", "k%d: v\r\n", "k%d:\n",
	"1\r\na\r\n", "1;a=b\r\nx\r\n", "0\r\n", "00000000", "1;", ";a=\"b\"", "1 \r\n", "ffffffffffffffff",
	"--b", "--b\r\n", "--b\r\n\r\n", "\r\n--b", "\r\n--b\r\n\r\n", "\r\n--", "\n--c", "--b--\r\n", "\r\n--b \t", "--b\r\na: b\r\n\r\nx\r\n", "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\ns\r\n", "--b\r\nX: \r\n", "--b\n",
	"<a>", "</a>", "<a", "<a ", "<a b=\"c\"", "<!--", "-->", "<![CDATA[", "<?", "&lt", "<a/>", "\n<a>", "<a b='",
	`"a",`, "1,", "{},", "[],", `"[1]",`, `"{\"a\":1}",`, `"a":1,`, `"k%d":%[1]d,`, `{"id":%d},`, `"token":1,`, `null,`, "//", "/*", "*/", "# ", "- ", "a: ", "  - a\n", "a: &a [*a]\n", "&a ", "*a ", "? ", "|\n", "!!",
	"GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "Blocked host", "Invalid ", "data: a\n", "data:\n", "evt_", "t=1,", "v1=a,", "t=", "2006-01-02", "1h", "alias:", "q:a ", `"a" `, `\ `,
}

// worstValues are shapes with a beginning, an end or nested brackets, as in forms, header lines and JSON.
var worstValues = []Worst{
	{Begin: "a=", Unit: "a"},
	{Begin: "a=", Unit: "%%7B%%22"},
	{Begin: "token=", Unit: ";#"},
	{Begin: "token=", Unit: "a", End: "&b"},
	{Begin: "a=[", Unit: "0,", End: "0]&b"},
	{Begin: "a: ", Unit: "b", End: "\r\n"},
	{Begin: "a: ", Unit: " ", End: "b\r\n"},
	{Begin: "a: b\r\n", Unit: " c \r\n"},
	{Unit: "[", Close: "]"},
	{Unit: "[ ", Close: " ]"},
	{Unit: "{\"a\":", Close: "}", Begin: "", End: ""},
	{Unit: `{"a":[`, Close: "]}"},
	{Unit: `{"token":[`, Close: "]}"},
	{Unit: `{"id":1,"a":`, Close: "}"},
	{Begin: "[0", Unit: ",0", End: "]"},
	{Begin: "[0", Unit: ",%d", End: "]"},
	{Begin: "[0", Unit: ", \n\t%d", End: "]"},
	{Begin: "[0", Unit: ",{}", End: "]"},
	{Begin: "[0", Unit: `,{"id":%d}`, End: "]"},
	{Begin: "[0", Unit: `,{"id":1}`, End: "]"},
	{Begin: "[0", Unit: `,{"id":%d,"name":"a","b":[]}`, End: "]"},
	{Begin: "[0", Unit: `,"[0,1]"`, End: "]"},
	{Begin: "[0", Unit: `,"{\"token\":1}"`, End: "]"},
	{Begin: "[0", Unit: `,"[["`, End: "]"},
	{Begin: "[0", Unit: `,"\ud83d\ude00"`, End: "]"},
	{Begin: `{"a":0`, Unit: `,"a":0`, End: "}"},
	{Begin: `{"a":0`, Unit: `,"k%d":0`, End: "}"},
	{Begin: `{"a":0`, Unit: `,"token":"s"`, End: "}"},
	{Begin: `{"a":0`, Unit: `,"token":["s"]`, End: "}"},
	{Begin: `{"a":0`, Unit: `,"token%d":{"a":1}`, End: "}"},
	{Begin: `{"a":0`, Unit: `,"type":{"type":1}`, End: "}"},
	{Begin: `{"a":0`, Unit: `,"":""`, End: "}"},
	{Begin: `{"a":"`, Unit: `a`, End: `"}`},
	{Begin: `{"a":"`, Unit: `\\`, End: `"}`},
	{Begin: `{"a":"`, Unit: `\"`, End: `"}`},
	{Begin: `{"a":"`, Unit: `\u0000`, End: `"}`},
	{Begin: `{"a":"[`, Unit: `[`, Close: "]", End: `]"}`},
	{Begin: `{"a":"{`, Unit: `\"a\":{`, End: `"}`},
	{Begin: `{"a":"`, Unit: "\u202e", End: `"}`},
	{Begin: `{"`, Unit: `a.`, End: `":1}`},
	{Begin: `{"a":`, Unit: " ", End: "1}"},
	{Begin: `{"a":`, Unit: "1", End: "}"},
	{Begin: `{"a":1}`, Unit: "\n{\"a\":%d}"},
	{Unit: "{\"a\":1}\n"},
	{Begin: "a: 1\n", Unit: "k%d: 1\n"},
	{Begin: "a:\n", Unit: "  - a\n"},
	{Begin: "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n", Unit: "\r\n--c", End: "\r\n--b--\r\n"},
	{Begin: "--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n", Unit: "\r\n", End: "\r\n--b--\r\n"},
	{Begin: "--b\r\nContent-Disposition: form-data; name=\"", Unit: "\\\"", End: "\"\r\n\r\na\r\n--b--\r\n"},
	{Begin: "--b\r\n", Unit: "name=", End: "\r\n\r\na\r\n--b--\r\n"},
	{Begin: "--b\r\n", Unit: "a: b\r\n", End: "\r\na\r\n--b--\r\n"},
	{Begin: "--b\r\n\r\n{", Unit: "\"a\":{", End: "\r\n--b--\r\n"},
	{Unit: "--b\r\nContent-Disposition: form-data; name=\"k%d\"\r\n\r\n{\"token\":1}\r\n", End: "--b--\r\n"},
	{Begin: "<a>", Unit: "<b>", Close: "</b>", End: "</a>"},
	{Begin: "<a>", Unit: "<b c=\"d\"/>", End: "</a>"},
	{Begin: "<a>", Unit: "text ", End: "</a>"},
	{Begin: "<!DOCTYPE a [", Unit: "<!ENTITY k%d \"&a;&a;\">", End: "]>"},
	{Begin: "<a ", Unit: "k%d=\"1\" ", End: "/>"},
}

// Worsts lists all shapes.
func Worsts() []Worst {
	list := slices.Clone(worstValues)
	for _, u := range worstUnits {
		list = append(list, Worst{Unit: u})
	}
	return list
}

// worstTime is the longest time that a function may take for a MiB of its worst bytes. For a function that
// never gets a MiB, it is the time for the largest input that it ever gets.
const worstTime = 100 * time.Millisecond

// worstPasses is the number of plain passes over a MiB that take worstTime on a quiet machine.
const worstPasses = 40

// plainPass returns the CPU time of a plain pass over a MiB. Like the simplest parser, it looks at each byte
// and copies each word to another place.
func plainPass() time.Duration {
	var words [][]byte
	return CPUTime(func() {
		from := 0
		for i, c := range plainText() {
			if c == '&' {
				words = append(words, bytes.Clone(plainText()[from:i]))
				from = i + 1
			}
		}
	})
}

var plainText = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("0123456789abcde&"), 1<<20/16) })

// measuring is locked while one function is measured. Functions that run at the same time in this process
// would slow down its access to memory.
var measuring sync.Mutex

// Measure returns the CPU time that f takes, and its limit for n bytes: 100 ms for a MiB. On a slower or
// busier machine, the limit is the time of worstPasses * raceFactor plain passes; the slower one of the
// passes before and after f counts. If f takes longer than the limit, but at most ten times as long, it is
// measured again, up to seven times, because other programs may have used the caches of the CPU. The garbage
// collector is off during a measurement.
func Measure(n int, f func()) (took, limit time.Duration) {
	measuring.Lock()
	defer measuring.Unlock()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for try := range 8 {
		if try > 0 {
			runtime.GC()
		}
		before, now, after := plainPass(), CPUTime(f), plainPass()
		most := time.Duration(float64(max(worstTime, raceFactor*worstPasses*max(before, after))) * float64(n) / (1 << 20))
		if try == 0 || float64(now)/float64(most) < float64(took)/float64(limit) {
			took, limit = now, most
		}
		if took <= limit || took > 10*limit {
			break
		}
	}
	return took, limit
}

// WorstBytes fails the test if f takes more than 100 ms of CPU time (see Measure) for bytes of any shape.
// Their number, most, is a MiB, or the largest number of bytes that f ever gets if that is less.
func WorstBytes(t *testing.T, most int, f func(p []byte)) {
	t.Helper()
	WorstShapes(t, most, Worsts(), f)
}

// WorstShapes is like WorstBytes, but tries only the given shapes. First it tries each shape with 1/128 and
// with 1/32 of the bytes. It measures a shape with all bytes if the two times are not in proportion, or if
// the whole would take more than half of the limit. It also measures the slowest of the other shapes. The log
// has the slowest shape.
func WorstShapes(t *testing.T, most int, shapes []Worst, f func(p []byte)) {
	t.Helper()
	type guess struct {
		shape Worst
		time  time.Duration // estimate for all bytes
		doubt bool
	}
	small, medium := min(max(most/128, 4<<10), most), min(max(most/32, 16<<10), most)
	of := func(shape Worst, n int) time.Duration {
		p := shape.Bytes(n)
		return CPUTime(func() { f(p) })
	}
	half := max(worstTime, raceFactor*worstPasses*plainPass()) / 2
	list := make([]guess, 0, len(shapes))
	for _, shape := range shapes {
		took := of(shape, medium)
		g := guess{shape: shape, time: took * time.Duration(max(1, most/medium))}
		// With four times the bytes, quadratic code takes sixteen times as long.
		g.doubt = medium < most && took > 8*of(shape, small)+200*time.Microsecond
		list = append(list, g)
	}
	slices.SortStableFunc(list, func(a, b guess) int { return cmp.Compare(b.time, a.time) })
	var share float64 // largest part of the limit that a measured shape took
	var slowest time.Duration
	var which Worst
	for i, g := range list {
		if !g.doubt && g.time < half && (i >= 8 || g.time < slowest) {
			continue
		}
		p := g.shape.Bytes(most)
		took, limit := Measure(1<<20, func() { f(p) })
		if took > limit {
			t.Errorf("%v: %d bytes took %v, more than %v", g.shape, len(p), took.Round(time.Millisecond), limit.Round(time.Millisecond))
		}
		if s := float64(took) / float64(limit); s > share {
			share, slowest, which = s, max(slowest, took), g.shape
		}
	}
	t.Logf("%.0f %% of 100 ms on a quiet machine, at most (now %.1f ms of processor time for %d KiB): %v", 100*share, slowest.Seconds()*1000, most>>10, which)
}

// Neighbours returns changed copies of p: with one or many other bytes, reversed, rotated, cut in half, and
// empty. They are for functions that compare two texts.
func Neighbours(p []byte) [][]byte {
	reversed, scattered, last := slices.Clone(p), slices.Clone(p), slices.Clone(p)
	slices.Reverse(reversed)
	for i := 3; i < len(p); i += 7 {
		scattered[i] ^= 1
	}
	if len(last) > 2 {
		last[len(last)/2] ^= 1
	}
	shifted := append(slices.Clone(p[len(p)/3:]), p[:len(p)/3]...)
	return [][]byte{last, scattered, reversed, shifted, p[:len(p)/2], nil}
}

// CPUTime returns the CPU time that f used. The time of other programs does not count.
func CPUTime(f func()) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun := threadTime()
	f()
	return threadTime() - begun
}

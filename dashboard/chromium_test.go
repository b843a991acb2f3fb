package dashboard_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"relay/relaytest"

	"github.com/chromedp/chromedp"
)

// patience is the longest time that a browser on a busy machine may need for one step.
const patience = time.Minute

// chromium is a browser that the tests of this package share. Each test has its own window and cookies. The
// process starts with the first test that needs it, and again if it has died.
type chromium struct {
	programs []string // names of the program; the first one that is installed is started

	mu   sync.Mutex
	dir  string          // folder of the profile and of temporary files
	ctx  context.Context // nil = Chromium is not started
	stop func()
}

// The headless shell is Chromium without the parts around a page, and needs half of its processor time. It
// refuses every permission and so shows no notifications; tests of notifications use whole.
var (
	shell = chromium{programs: []string{"chromium-headless-shell", "chromium"}}
	whole = chromium{programs: []string{"chromium"}}
)

func TestMain(m *testing.M) {
	relaytest.Slowdown(time.Now()) // this call starts to measure how busy the machine is
	code := m.Run()
	shell.close()
	whole.close()
	relaytest.Remove()
	os.Exit(code)
}

// tab opens a window that is closed at the end of the test.
func (c *chromium) tab(t *testing.T) context.Context {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil && gone(c.ctx) {
		t.Log("Chromium died after an earlier test; another one is started")
		c.end()
	}
	if c.ctx == nil {
		c.start(t)
	}
	ctx, cancel := chromedp.NewContext(c.ctx, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	// chromedp keeps the context of the first step for the whole life of the window, so this context must have
	// no deadline. A timer that is stopped after the first step limits this step instead.
	late := time.AfterFunc(patience, cancel)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatalf("Chromium opens no window: %v", err)
	}
	late.Stop()
	return ctx
}

func (c *chromium) start(t *testing.T) {
	t.Helper()
	path, err := "", error(nil)
	for _, name := range c.programs {
		if path, err = exec.LookPath(name); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal("chromium is not installed; `make setup` does that")
	}
	// The path is short, because Chromium makes a socket in the folder, and the address of a socket has at
	// most 107 bytes.
	c.dir, err = os.MkdirTemp("", "relay-chromium-")
	must(t, err)
	opts := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(path),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.WSURLReadTimeout(patience), chromedp.WindowSize(1280, 900),
		chromedp.Flag("host-resolver-rules", "MAP *.test 127.0.0.1"),
		chromedp.UserDataDir(filepath.Join(c.dir, "profile")), chromedp.Env("TMPDIR="+c.dir))
	allocator, stopAllocator := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, cancel := chromedp.NewContext(allocator)
	c.ctx, c.stop = ctx, func() {
		cancel()
		stopAllocator()
	}
	late := time.AfterFunc(2*patience, stopAllocator)
	if err := chromedp.Do(ctx); err != nil {
		c.end()
		t.Fatalf("Chromium does not start: %v", err)
	}
	late.Stop()
}

// gone reports whether the browser of the context has died.
func gone(ctx context.Context) bool {
	b := chromedp.FromContext(ctx).Browser
	if b == nil {
		return true
	}
	select {
	case <-b.LostConnection:
		return true
	default:
		return false
	}
}

func (c *chromium) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx != nil {
		c.end()
	}
}

// end stops the browser and removes its files. It tries again for a while, because child processes of
// the browser may still write files.
func (c *chromium) end() {
	c.stop()
	for end := time.Now().Add(10 * time.Second); os.RemoveAll(c.dir) != nil && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	c.ctx, c.stop = nil, nil
}

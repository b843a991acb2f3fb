package main

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"

	"relay/store/pgtest"
)

// environment is what all systems share: the local server behind the tunnels, a key, a
// folder, and the processes to end.
type environment struct {
	options
	ctx      context.Context
	local    string // address of the local server
	server   *http.Server
	key      string // path of a private key; the public one has the suffix .pub
	signer   ssh.Signer
	postgres *pgtest.Server // nil until a system needs it
	started  []*exec.Cmd
}

func newEnvironment(ctx context.Context, o options) (_ *environment, err error) {
	env := &environment{options: o, ctx: ctx}
	if env.dir, err = filepath.Abs(o.dir); err != nil {
		return nil, err
	}
	if err = os.Mkdir(env.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder for data; remove it if an earlier run left it: %w", err)
	}
	if env.programs, err = filepath.Abs(o.programs); err == nil {
		err = env.makeKey()
	}
	if err == nil {
		err = env.startLocal()
	}
	if err != nil {
		return nil, errors.Join(err, env.close())
	}
	return env, nil
}

func (env *environment) makeKey() error {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return err
	}
	if env.signer, err = ssh.NewSignerFromKey(private); err != nil {
		return err
	}
	authorized, err := ssh.NewPublicKey(public)
	if err != nil {
		return err
	}
	env.key = filepath.Join(env.dir, "key")
	return errors.Join(os.WriteFile(env.key, pem.EncodeToMemory(block), 0o600),
		os.WriteFile(env.key+".pub", ssh.MarshalAuthorizedKey(authorized), 0o644))
}

// bulkSize is the size of the bodies of the loads named bulk.
const bulkSize = 32 << 20

// startLocal starts the local server. It answers with three bytes, with bulkSize bytes at
// /down, and at /up after it has read the body.
func (env *environment) startLocal() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	env.local = ln.Addr().String()
	block := make([]byte, 256<<10)
	env.server = &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.URL.Path == "/down" {
			w.Header().Set("Content-Length", strconv.Itoa(bulkSize))
			for range bulkSize / len(block) {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})}
	go func() { _ = env.server.Serve(ln) }()
	return nil
}

// start runs a program until close. Its output goes to a file of the folder.
func (env *environment) start(name string, extra []string, args ...string) (int, error) {
	log, err := os.Create(filepath.Join(env.dir, fmt.Sprintf("%s-%d.log", name, len(env.started))))
	if err != nil {
		return 0, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(append(os.Environ(), "HOME="+env.dir), extra...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl+C reaches this program first
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start %s: %w", name, err)
	}
	env.started = append(env.started, cmd)
	return cmd.Process.Pid, nil
}

// logs gives the ends of the output of all programs.
func (env *environment) logs() string {
	files, _ := filepath.Glob(filepath.Join(env.dir, "*.log")) // the pattern is well formed
	var b strings.Builder
	for _, file := range files {
		text, _ := os.ReadFile(file) // what cannot be read is left out
		fmt.Fprintf(&b, "%s: %s\n", filepath.Base(file), text[max(0, len(text)-2000):])
	}
	return b.String()
}

// stop ends a process that start gave, and waits for it.
func (env *environment) stop(pid int) {
	for _, cmd := range env.started {
		if cmd.Process.Pid == pid && cmd.ProcessState == nil {
			_ = cmd.Process.Signal(syscall.SIGTERM)
			late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
			_ = cmd.Wait()
			late.Stop()
		}
	}
}

// close ends everything, the newest first, and removes the folder.
func (env *environment) close() error {
	for i := len(env.started) - 1; i >= 0; i-- {
		env.stop(env.started[i].Process.Pid)
	}
	if env.postgres != nil {
		env.postgres.Close()
	}
	if env.server != nil {
		_ = env.server.Close()
	}
	return os.RemoveAll(env.dir)
}

// database starts Postgres once and gives the address of an empty schema.
func (env *environment) database() (url string, pid int, err error) {
	if env.postgres == nil {
		if env.postgres, err = pgtest.Launch(pgtest.Options{Fsync: true}); err != nil {
			return "", 0, err
		}
	}
	if url, err = env.postgres.NewSchema(); err != nil {
		return "", 0, err
	}
	pid, err = env.postgres.PID()
	return url, pid, err
}

// freePort gives a loopback port where nobody listens now.
func freePort() (int, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return ln.Addr().(*net.TCPAddr).Port, ln.Close()
}

// await calls try until it succeeds, for at most a minute.
func await(ctx context.Context, what string, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, err)
		case <-time.After(2 * time.Millisecond):
		}
	}
}

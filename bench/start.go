package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/errgroup"
)

// oneWay is the delay of the link in each direction: a round trip takes 50 ms.
const oneWay = 25 * time.Millisecond

// measureStart measures the time from the start of a client to the first answer, on
// loopback and over a delayed link, and over the link how long the next requests take. The
// figures of the link are round trips.
func measureStart(ctx context.Context, env *environment, s *system, out *results) error {
	if s.connect == nil {
		return nil
	}
	first, pid, _, _, err := startOnce(ctx, env, s, s.ssh)
	if err != nil {
		return err
	}
	env.stop(pid)
	out.figure(s.name, "start to first 200, loopback (ms)", milliseconds(first))
	l, err := newLink(s.ssh, oneWay)
	if err != nil {
		return err
	}
	defer l.close()
	first, pid, addr, host, err := startOnce(ctx, env, s, l.addr())
	if err != nil {
		return err
	}
	defer env.stop(pid)
	trips := func(d time.Duration) float64 { return d.Seconds() / (2 * oneWay).Seconds() }
	out.figure(s.name, "start to first 200, 50 ms link (round trips)", trips(first))
	req := (&load{}).request(host)
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, name := range []string{"first request of a connection", "second request", "third request"} {
		began := time.Now()
		if status, err := exchange(conn, in, req); err != nil || status != 200 {
			return fmt.Errorf("%s: status %d: %w", name, status, err)
		}
		out.figure(s.name, name+", 50 ms link (round trips)", trips(time.Since(began)))
	}
	return nil
}

func startOnce(ctx context.Context, env *environment, s *system, ssh string) (took time.Duration, pid int, addr, host string, err error) {
	began := time.Now()
	if pid, addr, host, err = s.connect(ssh); err != nil {
		return 0, 0, "", "", err
	}
	req := (&load{fresh: true}).request(host)
	err = await(ctx, "first answer", func() error {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			return err
		}
		defer conn.Close()
		status, err := exchange(conn, bufio.NewReader(conn), req)
		if err == nil && status != 200 {
			err = fmt.Errorf("status %d", status)
		}
		return err
	})
	return time.Since(began), pid, addr, host, err
}

// measureIdle opens tunnels on each relayd, and measures how much its live heap and its
// stacks grow, and how much its resident memory. The second holds what the logins left
// behind too, which goes with time.
func measureIdle(env *environment, systems []*system, n int, out *results) error {
	for _, s := range systems {
		if s.data == "" {
			continue
		}
		before, err := memoryOf(s)
		if err != nil {
			return err
		}
		clients, err := env.openTunnels(s.ssh, n)
		if err == nil {
			time.Sleep(5 * time.Second) // the stacks of the logins are given back
			var after memory
			after, err = memoryOf(s)
			each := func(before, after int64) float64 { return float64(after-before) / 1024 / float64(n) }
			out.figure(s.name, fmt.Sprintf("heap and stacks of an idle tunnel, %d of them (KiB)", n), each(before.live, after.live))
			out.figure(s.name, fmt.Sprintf("resident memory of an idle tunnel, %d of them (KiB)", n), each(before.resident, after.resident))
		}
		for _, c := range clients {
			_ = c.Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// memory is that of a relayd in bytes.
type memory struct{ live, resident int64 }

// memoryOf reads the resident memory, and then runs the garbage collector and reads what
// lives.
func memoryOf(s *system) (m memory, err error) {
	if m.resident, err = residentBytes(s.server[0]); err != nil {
		return m, err
	}
	for range 3 { // each run halves stacks that are too large
		if _, err := get("http://" + s.admin + "/debug/pprof/heap?gc=1"); err != nil {
			return m, err
		}
	}
	figures, err := get("http://" + s.admin + "/metrics")
	if err != nil {
		return m, err
	}
	for line := range strings.Lines(figures) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name != "go_memstats_heap_alloc_bytes" && name != "go_memstats_stack_inuse_bytes" {
			continue
		}
		bytes, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return m, err
		}
		m.live += int64(bytes)
	}
	return m, nil
}

// get returns the body at a URL.
func get(url string) (string, error) {
	res, err := http.Get(url)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, res.Status)
	}
	return string(body), err
}

// loginsAtOnce is how many logins of openTunnels run at a time: each one makes an alias,
// and a commit of Postgres takes as long for sixteen of them as for one.
const loginsAtOnce = 16

// openTunnels logs in n times and forwards an alias each time. It returns the connections
// also when it fails.
func (env *environment) openTunnels(addr string, n int) ([]*ssh.Client, error) {
	conf := &ssh.ClientConfig{
		User: "bench", Auth: []ssh.AuthMethod{ssh.PublicKeys(env.signer)}, Timeout: 30 * time.Second,
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // loopback, and nothing secret goes there
	}
	clients := make([]*ssh.Client, n)
	group, ctx := errgroup.WithContext(env.ctx)
	group.SetLimit(loginsAtOnce)
	for i := range n {
		group.Go(func() (err error) {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if clients[i], err = ssh.Dial("tcp", addr, conf); err != nil {
				return fmt.Errorf("login %d: %w", i+1, err)
			}
			payload := ssh.Marshal(struct {
				Bind string
				Port uint32
			}{fmt.Sprintf("idle%d", i), 80})
			ok, _, err := clients[i].SendRequest("tcpip-forward", true, payload)
			if err == nil && !ok {
				err = errors.New("refused")
			}
			if err != nil {
				return fmt.Errorf("forward %d: %w", i+1, err)
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.DeleteFunc(clients, func(c *ssh.Client) bool { return c == nil }), err
}

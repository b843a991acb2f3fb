package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"
)

// load is one way of sending requests.
type load struct {
	name    string
	senders int
	fresh   bool   // each request has a connection of its own
	path    string // "" = /hook
	up      bool   // the body has bulkSize bytes
}

var loads = []load{
	{name: "keep-alive-1", senders: 1},
	{name: "keep-alive-16", senders: 16},
	{name: "keep-alive-256", senders: 256},
	{name: "new-16", senders: 16, fresh: true},
	{name: "bulk-up", senders: 1, path: "/up", up: true},
	{name: "bulk-down", senders: 1, path: "/down"},
}

func chooseLoads(list string) ([]load, error) {
	return pick(loads, list, func(l load) string { return l.name })
}

// measurement is what one load on one system gave. CPU times are microseconds a request.
type measurement struct {
	Requests    int     `json:"requests"`
	Errors      int     `json:"errors"`
	PerSecond   float64 `json:"perSecond"`
	P50         float64 `json:"p50Ms"`
	P99         float64 `json:"p99Ms"`
	ServerCPU   float64 `json:"serverCpuUs"`
	ClientCPU   float64 `json:"clientCpuUs"`
	DatabaseCPU float64 `json:"databaseCpuUs"`
}

var payload = bytes.Repeat([]byte(`{"type":"invoice.paid","id":"evt_1"}`), 8)

// request gives the bytes of one request.
func (l *load) request(host string) []byte {
	path, body := l.path, payload
	if path == "" {
		path = "/hook"
	}
	if l.up {
		body = make([]byte, bulkSize)
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, host, len(body))
	if l.fresh {
		head += "Connection: close\r\n"
	}
	return append([]byte(head+"\r\n"), body...)
}

// measure runs a load for a time, after a short run that is not counted.
func measure(ctx context.Context, s *system, l load, each time.Duration) (m measurement, err error) {
	req := l.request(s.host)
	l.send(ctx, s.addr, req, each/4)
	groups := [][]int{s.server, s.client, s.database}
	before := make([]int64, len(groups))
	for i, pids := range groups {
		if before[i], err = cpuOf(pids); err != nil {
			return m, err
		}
	}
	began := time.Now()
	times, failed := l.send(ctx, s.addr, req, each)
	took := time.Since(began)
	m.Requests, m.Errors = len(times), failed
	if len(times) == 0 {
		return m, errors.New("no request was answered by 200")
	}
	for i, to := range []*float64{&m.ServerCPU, &m.ClientCPU, &m.DatabaseCPU} {
		after, err := cpuOf(groups[i])
		if err != nil {
			return m, err
		}
		*to = float64(after-before[i]) / float64(len(times))
	}
	slices.Sort(times)
	m.PerSecond = float64(len(times)) / took.Seconds()
	m.P50, m.P99 = milliseconds(times[len(times)/2]), milliseconds(times[len(times)*99/100])
	return m, nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// send sends requests with all senders for a time, and gives how long each one took that
// was answered by 200.
func (l *load) send(ctx context.Context, addr string, req []byte, most time.Duration) (times []time.Duration, failed int) {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range l.senders {
		all.Go(func() {
			own, bad := l.sender(ctx, addr, req)
			mu.Lock()
			defer mu.Unlock()
			times, failed = append(times, own...), failed+bad
		})
	}
	all.Wait()
	return times, failed
}

func (l *load) sender(ctx context.Context, addr string, req []byte) (times []time.Duration, failed int) {
	var conn net.Conn
	var in *bufio.Reader
	defer func() {
		if conn != nil {
			_ = conn.Close()
		}
	}()
	for ctx.Err() == nil {
		began := time.Now()
		if conn == nil {
			var err error
			if conn, err = net.Dial("tcp", addr); err != nil {
				failed++
				continue
			}
			in = bufio.NewReaderSize(conn, 64<<10)
		}
		status, err := exchange(conn, in, req)
		if err != nil || status != 200 {
			failed++
		} else {
			times = append(times, time.Since(began))
		}
		if err != nil || l.fresh {
			_ = conn.Close()
			conn = nil
		}
	}
	return times, failed
}

// exchange sends a request and reads the answer, whose body has a length.
func exchange(conn net.Conn, in *bufio.Reader, req []byte) (status int, err error) {
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := conn.Write(req); err != nil {
		return 0, err
	}
	length := -1
	for first := true; ; first = false {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		if first {
			if len(line) < 12 {
				return 0, errors.New("the answer has no status line")
			}
			if status, err = strconv.Atoi(string(line[9:12])); err != nil {
				return 0, err
			}
			continue
		}
		if name, value, ok := bytes.Cut(line, []byte(":")); ok && bytes.EqualFold(name, []byte("Content-Length")) {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(value))); err != nil {
				return 0, err
			}
		}
	}
	if length < 0 {
		return status, errors.New("the answer has no length")
	}
	_, err = io.CopyN(io.Discard, in, int64(length))
	return status, err
}

package record

// The programs that exports are. What varies stands in braces; the lines of the
// request are the only part that a stranger has a say in.

const goProgram = `// Sends the request of event {id}, byte for byte as it was received, and
// checks the status of the answer:
//
//	RELAY_TEST_ADDR=127.0.0.1:3000 go test {id}_test.go
//
// With RELAY_TEST_TLS=1 it speaks TLS and takes any certificate: it is meant for a
// server of your own.
package main

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

// wantStatus is the status that the answer must have; 0 = any from 200 to 299.
const wantStatus = {status}

// request is every byte of the request.
var request = strings.Join([]string{
{lines}}, "")

func TestEvent(t *testing.T) {
	if err := check(); err != nil {
		t.Fatal(err)
	}
}

func main() {
	if err := check(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func check() error {
	status, err := send()
	if err != nil {
		return err
	}
	if status != wantStatus && (wantStatus != 0 || status < 200 || status > 299) {
		return fmt.Errorf("answered %d, want %d", status, wantStatus)
	}
	return nil
}

// send gives the status of the answer.
func send() (int, error) {
	addr := cmp.Or(os.Getenv("RELAY_TEST_ADDR"), "127.0.0.1:3000")
	conn, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if os.Getenv("RELAY_TEST_TLS") == "1" {
		conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	}
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	go io.WriteString(conn, request) // an answer may come before all is sent
	r := bufio.NewReader(conn)
	for {
		status, err := readHead(r)
		if err != nil {
			return 0, fmt.Errorf("no answer from %s: %w", addr, err)
		}
		if status >= 200 || status == 101 {
			return status, nil
		}
	}
}

func readHead(r *bufio.Reader) (status int, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	var minor int
	if _, err := fmt.Sscanf(line, "HTTP/1.%d %d", &minor, &status); err != nil {
		return 0, fmt.Errorf("this is no HTTP answer: %q", line)
	}
	for strings.TrimRight(line, "\r\n") != "" {
		if line, err = r.ReadString('\n'); err != nil {
			return 0, err
		}
	}
	return status, nil
}
`

const jsProgram = `// Sends the request of event {id}, byte for byte as it was received, and
// checks the status of the answer:
//
//   RELAY_TEST_ADDR=127.0.0.1:3000 node --test {id}.test.js
//
// With RELAY_TEST_TLS=1 it speaks TLS and takes any certificate: it is meant for a
// server of your own.

// The status that the answer must have; 0 = any from 200 to 299.
const wantStatus = {status};

// Every byte of the request.
const request = Buffer.from([
{lines}].join(""), "latin1");

async function send() {
  const addr = process.env.RELAY_TEST_ADDR || "127.0.0.1:3000";
  const colon = addr.lastIndexOf(":");
  const to = { host: addr.slice(0, colon).replace(/^\[|\]$/g, ""), port: Number(addr.slice(colon + 1)) };
  const secure = process.env.RELAY_TEST_TLS === "1";
  const { connect } = (await import(secure ? "node:tls" : "node:net")).default;
  return new Promise((resolve, reject) => {
    const socket = connect({ ...to, rejectUnauthorized: false });
    let got = "";
    socket.setTimeout(30000, () => socket.destroy(new Error("no answer within 30 s")));
    socket.once(secure ? "secureConnect" : "connect", () => socket.write(request));
    socket.on("error", reject);
    socket.on("close", () => reject(new Error("no answer from " + addr)));
    socket.on("data", (data) => {
      got += data.toString("latin1");
      for (let end; (end = got.indexOf("\r\n\r\n")) >= 0; got = got.slice(end + 4)) {
        const status = Number((/^HTTP\/1\.\d (\d{3})/.exec(got) || [])[1]);
        if (!(status < 200) || status === 101) {
          resolve(status);
          socket.destroy();
          return;
        }
      }
    });
  });
}

(async () => {
  const { test } = await import("node:test");
  const assert = (await import("node:assert")).default;
  test("event {id}", async () => {
    const status = await send();
    const right = wantStatus === 0 ? status >= 200 && status <= 299 : status === wantStatus;
    assert.ok(right, "answered " + status + ", want " + (wantStatus || "2xx"));
  });
})();
`

const pythonProgram = `"""Sends the request of event {id}, byte for byte as it was received, and
checks the status of the answer:

    RELAY_TEST_ADDR=127.0.0.1:3000 python3 test_{id}.py

With RELAY_TEST_TLS=1 it speaks TLS and takes any certificate: it is meant for a
server of your own.
"""

import os
import socket
import ssl
import threading
import unittest

# The status that the answer must have; 0 = any from 200 to 299.
WANT_STATUS = {status}

# Every byte of the request.
REQUEST = b"".join([
{lines}])


def connect():
    host, _, port = os.environ.get("RELAY_TEST_ADDR", "127.0.0.1:3000").rpartition(":")
    conn = socket.create_connection((host.strip("[]"), int(port)), timeout=30)
    if os.environ.get("RELAY_TEST_TLS") == "1":
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        conn = context.wrap_socket(conn, server_hostname=host.strip("[]"))
    return conn


def write(conn):
    try:
        conn.sendall(REQUEST)
    except OSError:
        pass  # an answer may come before all is sent


def send():
    """Gives the status of the answer."""
    with connect() as conn:
        writer = threading.Thread(target=write, args=(conn,), daemon=True)
        writer.start()
        answer = conn.makefile("rb")
        while True:
            line = answer.readline(65536)
            if not line.startswith(b"HTTP/1."):
                raise AssertionError("this is no HTTP answer: %r" % line)
            status = int(line.split(None, 2)[1])
            while line.strip(b"\r\n"):
                line = answer.readline(65536)
            if status >= 200 or status == 101:
                return status


class Event(unittest.TestCase):
    def test_answer(self):
        status = send()
        if WANT_STATUS == 0:
            self.assertIn(status, range(200, 300))
        else:
            self.assertEqual(status, WANT_STATUS)


if __name__ == "__main__":
    unittest.main()
`

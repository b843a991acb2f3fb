package client

import (
	"bufio"
	"bytes"
	"net"
	"os"
	"strconv"
	"strings"
)

// listens tells whether somebody listens on one of these addresses of this machine,
// by the kernel's own tables; known is false for other machines, and where the
// tables cannot be read.
func listens(addrs []string) (listening, known bool) {
	for _, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		if err != nil || !LoopbackName(host) {
			return false, false
		}
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return false, false
		}
		for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
			if found, ok := listenIn(table, uint16(n)); ok {
				known = true
				listening = listening || found
			}
		}
	}
	return listening, known
}

// listenIn looks for a listener on a port in a table of proc(5): fields are number,
// local address, remote address, state; 0A is LISTEN.
func listenIn(table string, port uint16) (found, ok bool) {
	file, err := os.Open(table)
	if err != nil {
		return false, false
	}
	defer file.Close()
	suffix := ":" + strings.ToUpper(strconv.FormatUint(0x10000|uint64(port), 16)[1:])
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := bytes.Fields(lines.Bytes())
		if len(fields) > 3 && string(fields[3]) == "0A" && strings.HasSuffix(string(fields[1]), suffix) {
			return true, true
		}
	}
	return false, true
}

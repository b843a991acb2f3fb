// Package bench compares Relay on one machine with nginx and sshd, and with itself when it
// carries more. Its programs are benchmarks (make bench-compare, make bench-growth): the
// same local server, the same senders, rounds of all systems in turn. They print ratios
// with their spread, because absolute figures say more about the machine than about a
// program. They need Linux (/proc), ssh, for the comparison sshd and nginx, and for Postgres
// its server. Everything listens on loopback and ends with the program.
package bench

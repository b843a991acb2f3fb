// Package bench compares Relay on one machine with nginx and sshd, and with itself under larger loads. Its
// benchmarks (make bench-compare, make bench-growth) use the same local server and the same senders for all
// systems, and measure the systems in turn, round by round. They print ratios with their spread, because
// absolute figures depend mostly on the machine. They need Linux (/proc) and ssh, sshd and nginx for the
// comparison, and Postgres for its store. Everything listens on loopback and ends with the benchmark.
package bench

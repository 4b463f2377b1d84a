// Package freeport finds ports for servers that want their address before they listen: etcd, whose members are told
// each other's addresses, and servers that a test starts as processes.
package freeport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// The ports are below those that Linux gives to connections and to listeners on port 0 (32768–60999, see
// net.ipv4.ip_local_port_range in ip(7)). A port from that range can be taken by any connection between the moment in
// which it was found and the moment in which its server listens. The ports are also below those that Berth assigns to
// tasks (cluster.FirstAutoPort).
const (
	lowest  = 15000
	highest = 29999
)

// attempts bounds how many ports are tried.
const attempts = 100

// Address returns an address of 127.0.0.1, as HOST:PORT, on which nothing listens. The port is random, so that two
// callers are unlikely to get the same one.
func Address(ctx context.Context) (string, error) {
	for range attempts {
		address := fmt.Sprintf("127.0.0.1:%d", lowest+rand.IntN(highest-lowest+1))
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("look for a free port: %w", err)
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("look for a free port: %d random ports from %d to %d are in use", attempts, lowest, highest)
}

// Package ports finds out whether a program of the machine uses a port, and which program that is.
//
// A port number belongs to one task of a node for TCP and for UDP, so both must be free. Everything here is about the
// network that the agent itself is in, which is that of the node.
package ports

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"syscall"
	"time"
)

// searchTimeout limits the search for the program that uses a port. It reads a file for each open file of the machine.
const searchTimeout = 2 * time.Second

// Free returns nil if a program of this machine could use the port now, at every address, over TCP and over UDP.
// Otherwise the error is a sentence for users. It names the port, the protocol, and the pid and the name of the program
// that uses the port, or says why that program has no name. A UDP port whose users share it (SO_REUSEADDR) is free.
//
// Tasks returns the ids of tasks by the pids of their containers. The sentence names the task whose program, or a child
// of it, uses the port. It is called only if the port is in use; nil knows no tasks.
func Free(ctx context.Context, port int, tasks func() map[int]string) error {
	address := ":" + strconv.Itoa(port)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return refusal(ctx, port, tcp, tasks, err)
	}
	if err := l.Close(); err != nil {
		return err
	}
	shared := net.ListenConfig{Control: shareAddress}
	p, err := shared.ListenPacket(ctx, "udp", address)
	if err != nil {
		return refusal(ctx, port, udp, tasks, err)
	}
	return p.Close()
}

// shareAddress permits other sockets at the address, if they permit it, too.
func shareAddress(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	})
	return errors.Join(err, failed)
}

// refusal says why the port cannot be used over the protocol.
func refusal(ctx context.Context, port int, p protocol, tasks func() map[int]string, err error) error {
	if !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("port %d cannot be used over %s: %w", port, p, err)
	}
	ctx, cancel := context.WithTimeout(ctx, searchTimeout)
	defer cancel()
	m := machine{proc: "/proc"}
	if tasks != nil {
		m.tasks = tasks()
	}
	return errors.New(m.describe(ctx, port, p))
}

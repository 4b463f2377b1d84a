// Package reverse lets servers open the connections of agents on passive nodes, which open none themselves.
//
// A server dials each passive node and keeps one unused connection to it. The server begins a connection with one line,
// its own address. The node's agent then uses the connection as if it had dialed that server: the agent begins TLS, and
// verifies the server. All that follows is as with an agent that dials. When the agent has begun to use a connection,
// the server dials the next one.
package reverse

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

const (
	// greetingWord begins the line that a server sends; the server's address follows.
	greetingWord = "berth-server/1 "
	// maxGreeting limits the length of the line in bytes.
	maxGreeting = 512
	// greetingTimeout bounds the time to send the line, and the time until it has arrived.
	greetingTimeout = 5 * time.Second
)

// KeepAlive returns the probes of unused connections: a lost machine is noticed within 20 s.
func KeepAlive() net.KeepAliveConfig {
	return net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 2}
}

// writeGreeting sends the line that begins a connection.
func writeGreeting(c net.Conn, server string) error {
	if err := c.SetWriteDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return err
	}
	if _, err := c.Write([]byte(greetingWord + server + "\n")); err != nil {
		return err
	}
	return c.SetWriteDeadline(time.Time{})
}

// readGreeting reads the line that begins a connection, and returns the server's address. It reads no byte after the
// line: a server sends nothing before the agent does.
func readGreeting(c net.Conn) (server string, err error) {
	if err := c.SetReadDeadline(time.Now().Add(greetingTimeout)); err != nil {
		return "", err
	}
	r := bufio.NewReaderSize(c, maxGreeting)
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errors.New("the first line is too long for a server's")
	case err != nil:
		return "", err
	case r.Buffered() > 0:
		return "", errors.New("a server sends nothing after its first line")
	}
	server, ok := strings.CutPrefix(strings.TrimSuffix(string(line), "\n"), greetingWord)
	host, https := strings.CutPrefix(server, "https://")
	if !ok || !https {
		return "", errors.New("the first line is not that of a server")
	}
	if _, _, err := net.SplitHostPort(host); err != nil {
		return "", fmt.Errorf("the server's address: %w", err)
	}
	return server, c.SetReadDeadline(time.Time{})
}

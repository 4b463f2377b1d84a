package ssh

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
)

// Dial opens a connection from the machine to an address, such as "tcp" and "127.0.0.1:7073". It supports deadlines. It
// ends with the connection to the machine, if not before.
func (c *Conn) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	client, _, err := c.client(ctx)
	if err != nil {
		return nil, err
	}
	channel, err := client.DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connect from %s to %s: %w", c.config.Target, address, orCause(ctx, err))
	}
	near, far := net.Pipe() // connections of the library have no deadlines
	var once sync.Once
	end := func() {
		once.Do(func() {
			_ = far.Close()
			_ = channel.Close()
		})
	}
	carry := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // a failure ends the connection, which both ends see
		end()
	}
	go carry(channel, far)
	go carry(far, channel)
	return &forwarded{near, remoteAddr(c.config.Target.address() + "/" + address)}, nil
}

// forwarded is a connection through a machine.
type forwarded struct {
	net.Conn
	remote remoteAddr
}

// RemoteAddr names the machine and the address there.
func (f *forwarded) RemoteAddr() net.Addr { return f.remote }

// remoteAddr is "host:port/address".
type remoteAddr string

func (remoteAddr) Network() string  { return "ssh" }
func (a remoteAddr) String() string { return string(a) }

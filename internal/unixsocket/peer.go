package unixsocket

import (
	"context"
	"net"
	"strconv"
	"syscall"
)

type peerKey struct{}

// ConnContext stores in the context of a connection over a unix socket the user at the other end, as the kernel names
// it. It is a ConnContext of http.Server. The contexts of other connections stay as they are.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	uc, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return ctx
	}
	var cred *syscall.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	}); err != nil || credErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, "uid:"+strconv.FormatUint(uint64(cred.Uid), 10))
}

// PeerOf returns the user that ConnContext stored, such as "uid:1000".
func PeerOf(ctx context.Context) (user string, known bool) {
	user, known = ctx.Value(peerKey{}).(string)
	return user, known
}

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
	return WithUID(ctx, cred.Uid)
}

// WithUID stores the number of a user in a context, as ConnContext does.
func WithUID(ctx context.Context, uid uint32) context.Context {
	return context.WithValue(ctx, peerKey{}, uid)
}

// UIDOf returns the user that ConnContext stored, by its number.
func UIDOf(ctx context.Context) (uid uint32, known bool) {
	uid, known = ctx.Value(peerKey{}).(uint32)
	return uid, known
}

// PeerOf returns the user that ConnContext stored, such as "uid:1000".
func PeerOf(ctx context.Context) (user string, known bool) {
	uid, known := UIDOf(ctx)
	if !known {
		return "", false
	}
	return "uid:" + strconv.FormatUint(uint64(uid), 10), true
}

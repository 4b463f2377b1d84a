package hostapi

import (
	"context"
	"net"
	"net/http"
	"os"
	"strconv"
	"syscall"

	"github.com/berthd/berth/internal/pki"
)

type peerKey struct{}

// withPeer stores in the context of a connection over a unix socket the user at the other end, as the kernel names it.
func withPeer(ctx context.Context, c net.Conn) context.Context {
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
	return context.WithValue(ctx, peerKey{}, cred.Uid)
}

// isAdministrator reports whether the caller of a request is root, or the user of the agent, on a unix socket.
func isAdministrator(r *http.Request) bool {
	uid, ok := r.Context().Value(peerKey{}).(uint32)
	return ok && r.TLS == nil && (uid == 0 || int64(uid) == int64(os.Geteuid()))
}

// callerOf names the caller of a request for the log.
func callerOf(r *http.Request) string {
	if subject, ok := pki.SubjectOf(r.TLS); ok {
		return subject.String()
	}
	if uid, ok := r.Context().Value(peerKey{}).(uint32); ok {
		return "uid:" + strconv.FormatUint(uint64(uid), 10)
	}
	return "unknown"
}

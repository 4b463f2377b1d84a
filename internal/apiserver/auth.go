package apiserver

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Who may talk: whoever can open the unix socket is trusted, for its mode lets only the owner do so. Over
// TCP, which is loopback only, a request needs the token, and its Host and Origin must be the
// server's: else a web page that a browser on this machine shows could talk to the server under a name
// of its own (DNS rebinding) or across origins.

// admit lets in who may talk to the API.
func (s *Server) admit(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := s.admission(r)
		if err == nil && !trusted(r) && !s.tokenHolds(r) {
			w.Header().Set("WWW-Authenticate", `Bearer realm="berth"`)
			err = problemf(http.StatusUnauthorized, "the request needs the server's token: send it as \"Authorization: Bearer <token>\"; the token is in the server's token file")
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admitAnyone lets in everyone on this machine, but no foreign web page.
func (s *Server) admitAnyone(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.admission(r); err != nil {
			s.fail(w, r, err)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// admission refuses requests that a foreign web page may have sent.
func (s *Server) admission(r *http.Request) error {
	if trusted(r) {
		return nil
	}
	if !loopbackHost(r.Host) {
		return problemf(http.StatusForbidden, "the Host header %q does not name this machine's loopback: use 127.0.0.1, [::1] or localhost", clip(r.Host))
	}
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(s.cfg.Origins, origin) {
		return nil
	}
	if u, err := url.Parse(origin); err == nil && u.Scheme == "http" && u.Host == r.Host {
		return nil
	}
	return problemf(http.StatusForbidden, "requests from the web origin %q are not allowed", clip(origin))
}

// trusted reports whether the request came over a unix socket.
func trusted(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	return ok && local.Network() == "unix"
}

// tokenHolds compares the request's token in a time that does not depend on it.
func (s *Server) tokenHolds(r *http.Request) bool {
	scheme, got, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") || s.cfg.Token == "" {
		return false
	}
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(s.cfg.Token))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// loopbackHost reports whether a Host header names this machine's loopback, with or without a port.
func loopbackHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

func baseContext(ctx context.Context) func(net.Listener) context.Context {
	return func(net.Listener) context.Context { return ctx }
}

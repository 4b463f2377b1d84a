package plain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestText formats errors of the system.
func TestText(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, missing := os.ReadFile(filepath.Join(dir, "none"))
	renamed := os.Rename(filepath.Join(dir, "none"), filepath.Join(dir, "other"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	_, taken := net.Listen("tcp", at)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	_, refused := net.Dial("tcp", at)
	_, asked := http.Get("http://" + at) //nolint:bodyclose // no server answers
	_, socket := net.Dial("unix", filepath.Join(dir, "none.sock"))
	foreign := &net.OpError{
		Op: "listen", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1},
		Err: &os.SyscallError{Syscall: "bind", Err: syscall.EADDRNOTAVAIL},
	}
	short := json.Unmarshal([]byte(`{"a":`), &struct{}{})
	page := json.Unmarshal([]byte(`<html>`), &struct{}{})
	step := &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}
	notFound := &net.DNSError{Err: "no such host", Name: "db.example", Server: "10.0.0.1:53", IsNotFound: true}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"nothing", nil, ""},
		{"one of ours", errors.New("there is no service web"), "there is no service web"},
		{"a file", missing, dir + "/none: no such file or directory"},
		{
			"a file, wrapped", fmt.Errorf("read the CA file: %w", missing),
			"read the CA file: " + dir + "/none: no such file or directory",
		},
		{
			"two files", errors.Join(missing, missing),
			dir + "/none: no such file or directory\n" + dir + "/none: no such file or directory",
		},
		{"a link", renamed, dir + "/none to " + dir + "/other: no such file or directory"},
		{
			"a port in use", fmt.Errorf("listen: %w", taken),
			"listen: another program listens at " + at + " (address already in use)",
		},
		{"no listener", refused, "nothing listens at " + at + " (connection refused)"},
		{
			"no listener, over HTTP", fmt.Errorf("check up: %w", asked),
			"check up: nothing listens at " + at + " (connection refused)",
		},
		{"no listener, by the system call", step, "nothing listens there (connection refused)"},
		{"no socket", socket, "the socket does not exist"},
		{"an address of another machine", foreign, "192.0.2.9:1 is not an address of this machine"},
		{
			"cut off", &net.OpError{
				Op: "read", Net: "tcp",
				Err: &os.SyscallError{Syscall: "read", Err: syscall.ECONNRESET},
			},
			"the connection was cut by the other side (connection reset by peer)",
		},
		{
			"a name", &net.OpError{Op: "dial", Net: "tcp", Err: notFound},
			"the name db.example is not known (no such host)",
		},
		{"short JSON", fmt.Errorf("read the answer: %w", short), "read the answer: it is truncated"},
		{"no JSON", page, "it is not JSON (invalid character '<' looking for beginning of value)"},
		{"too long", fmt.Errorf("pull: %w", context.DeadlineExceeded), "pull: it took too long"},
		{"broken off", fmt.Errorf("pull: %w", context.Canceled), "pull: it was interrupted"},
		{
			"the end", fmt.Errorf("read the EOF of it: %w", io.ErrUnexpectedEOF),
			"read the EOF of it: it ended too early",
		},
		{"over gRPC", errors.New(
			`rpc error: code = Unavailable desc = connection error: desc = "transport: Error while dialing: dial unix /x: timeout"`), `"dial unix /x: timeout"`},
		{
			"another protocol", errors.New(
				`net/http: HTTP/1.x transport connection broken: malformed HTTP response "SSH-2.0-x"`),
			"the program at this address does not speak HTTP",
		},
		{
			"an error of the system that says enough", &fs.PathError{Op: "open", Path: "/x", Err: syscall.EACCES},
			"/x: permission denied",
		},
	} {
		if got := Text(c.err); got != c.want {
			t.Errorf("%s:\n got %q\nwant %q", c.name, got, c.want)
		}
	}
}

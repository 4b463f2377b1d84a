package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// listCommands returns the visible commands.
func listCommands() []*cobra.Command {
	var all []*cobra.Command
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if !sub.Hidden {
				all = append(all, sub)
				walk(sub)
			}
		}
	}
	walk(newRootCommand(session.New(strings.NewReader(""), nil, nil)))
	return all
}

// runWrongUsage runs a wrong command line and returns its message. It checks the exit code, the empty standard output,
// and the reference to the help in the last line. The exit code is 2, or 1 for berth converge, whose 2 means a change.
func runWrongUsage(t *testing.T, words ...string) string {
	t.Helper()
	var stdout, stderr strings.Builder
	a := session.New(strings.NewReader(""), &stdout, &stderr)
	a.Env = func(name string) string {
		if name == "BERTH_ADDR" {
			return "unix:///nowhere/berth.sock" // no test gets as far as a connection
		}
		return ""
	}
	code := Run(t.Context(), a, words)
	line := "berth " + strings.Join(words, " ")
	want := session.ExitFault
	if words[0] == "converge" {
		want = session.ExitNo
	}
	if code != want || stdout.Len() > 0 {
		t.Errorf("%s: exit code %d, want %d; it prints %q", line, code, want, stdout.String())
	}
	lines := strings.Split(strings.TrimSpace(stderr.String()), "\n")
	if last := lines[len(lines)-1]; !strings.HasPrefix(lines[0], "berth: ") ||
		!strings.HasPrefix(last, "See 'berth ") || !strings.HasSuffix(last, " --help'.") {
		t.Errorf("%s: want a line that begins with berth: and one with a hint:\n%s", line, stderr.String())
	}
	return stderr.String()
}

// TestHelpIsNarrow checks that the help of each command fits into 120 columns.
func TestHelpIsNarrow(t *testing.T) {
	for _, c := range listCommands() {
		var help strings.Builder
		c.SetOut(&help)
		if err := c.Help(); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(help.String()) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 120 {
				t.Errorf("%s --help has a line of %d columns: %s", c.CommandPath(), n, line)
			}
		}
	}
}

// TestEveryCommandRefusesWrongFlags gives each command wrong values for each flag, and unknown flags.
func TestEveryCommandRefusesWrongFlags(t *testing.T) {
	t.Parallel()
	checked, near := 0, 0
	for _, c := range listCommands() {
		words := strings.Fields(c.CommandPath())[1:]
		if words[0] == "help" || words[0] == "completion" {
			continue
		}
		message := runWrongUsage(t, append(slices.Clone(words), "--no-such-flag=1")...)
		if !strings.Contains(message, "unknown flag: --no-such-flag") ||
			!strings.Contains(message, "See '"+c.CommandPath()+" --help'.") {
			t.Errorf("%s --no-such-flag: %s", c.CommandPath(), message)
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Name == "help" {
				return
			}
			checked++
			// a missing value
			if f.NoOptDefVal == "" {
				if message := runWrongUsage(t, append(slices.Clone(words), "--"+f.Name)...); !strings.Contains(message,
					"--"+f.Name+" needs a value: ") {
					t.Errorf("%s --%s: %s", c.CommandPath(), f.Name, message)
				}
			}
			// a value of another type
			if slices.Contains([]string{"bool", "int", "uint64", "float64", "duration"}, f.Value.Type()) {
				message := runWrongUsage(t, append(slices.Clone(words), "--"+f.Name+"=some")...)
				if !strings.Contains(message, fmt.Sprintf("--%s %q: want ", f.Name, "some")) &&
					!strings.Contains(message, `"some" is not a count`) {
					t.Errorf("%s --%s=some: %s", c.CommandPath(), f.Name, message)
				}
			}
			// a negative duration
			if f.Value.Type() == "duration" {
				message := runWrongUsage(t, append(slices.Clone(words), "--"+f.Name+"=-1s")...)
				if !strings.Contains(message,
					"--"+f.Name) && !strings.Contains(message, "needs") {
					t.Errorf("%s --%s=-1s: %s", c.CommandPath(), f.Name, message)
				}
			}
			// a misspelt flag
			if len(f.Name) > 5 {
				slip := f.Name[:2] + f.Name[3:]
				message := runWrongUsage(t, append(slices.Clone(words), "--"+slip+"=x")...)
				if strings.Contains(message,
					"did you mean --") {
					near++
				}
			}
		})
	}
	if checked < 100 || near < 60 {
		t.Errorf("checked %d flags, and for %d misspelt ones another was suggested: the test does not see "+
			"the commands", checked, near)
	}
}

// TestEveryCommandRefusesWrongArguments gives an argument to commands without one, an unknown subcommand to groups, and
// no argument to commands that need one.
func TestEveryCommandRefusesWrongArguments(t *testing.T) {
	t.Parallel()
	for _, c := range listCommands() {
		words := strings.Fields(c.CommandPath())[1:]
		if words[0] == "help" {
			continue
		}
		none, one := c.ValidateArgs(nil), c.ValidateArgs([]string{"no-such-thing"})
		switch {
		case c.HasSubCommands(), one != nil:
			message := runWrongUsage(t, append(slices.Clone(words), "no-such-thing")...)
			if one == nil && !strings.Contains(message, "no-such-thing") {
				t.Errorf("%s no-such-thing: %s", c.CommandPath(), message)
			}
		case none != nil:
			if message := runWrongUsage(t, words...); !strings.Contains(message, c.CommandPath()+" needs ") {
				t.Errorf("%s: %s", c.CommandPath(), message)
			}
		}
	}
	for _, words := range [][]string{
		{"help", "stauts"},
		{"completion", "tcsh"},
		{"stauts"},
		{"node", "lst"},
		{"token", "rm", "x"},
		{"server", "rm", "s1"},
	} {
		runWrongUsage(t, words...)
	}
}

// TestSystemFaultsNameTheRemedy checks that errors of the operating system come with a hint.
func TestSystemFaultsNameTheRemedy(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	_, missing := os.ReadFile(filepath.Join(dir, "none"))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, taken := net.Listen("tcp", l.Addr().String())
	fault := func(number syscall.Errno) error {
		return fmt.Errorf("write it: %w", &fs.PathError{Op: "write", Path: "/data/x", Err: number})
	}
	refused := func(status int, detail string, faults ...cluster.Fault) error {
		return &client.Error{Problem: api.Problem{Status: status, Detail: detail, Faults: faults}}
	}
	for _, c := range []struct {
		name string
		err  error
		want string
	}{
		{"no file", missing, "berth: " + dir + "/none: no such file or directory\nCheck the path.\n"},
		{"a port", fmt.Errorf("listen: %w", taken), "berth: listen: another program listens at " + l.Addr().String() +
			" (address already in use)\n'ss -ltxnp' shows the program that uses it: end that program, or choose another address.\n"},
		{
			"a full disk", fault(syscall.ENOSPC),
			"berth: write it: /data/x: no space left on device\nThe disk is full: free some space ('df -h' " +
				"shows the file systems), or name a folder on another disk.\n",
		},
		{
			"no right", fault(syscall.EACCES),
			"berth: write it: /data/x: permission denied\nThis user lacks the permission: use another user, " +
				"perhaps root, or name another file or folder.\n",
		},
		{
			"a disk for reading", fault(syscall.EROFS),
			"berth: write it: /data/x: read-only file system\nThe file system is read-only: name a " +
				"folder on another one.\n",
		},
		{"one fault", refused(422, "the request has 1 fault",
			cluster.Fault{Path: "count", Message: "is -1, want 0 to 9"}), "berth: count: is -1, want 0 to 9\n"},
		{
			"a parameter", refused(400, "the query has a fault", cluster.Fault{Path: "?tail", Message: "is \"x\""}),
			"berth: --tail: is \"x\"\n",
		},
		{
			"two faults", refused(422, "the request has 2 faults", cluster.Fault{Path: "a", Message: "is missing"},
				cluster.Fault{Path: "b", Message: "is 7"}),
			"berth: the request has 2 faults:\n  a: is missing\n  b: is 7\n",
		},
		{
			"a role", refused(403, "this needs the role operator"),
			"berth: this needs the role operator\nUse a token with the needed role (--token-file): an admin creates " +
				"one with 'berth token create'.\n",
		},
		{
			"a lost answer", fmt.Errorf("%w: %w", client.ErrUncertain, errors.New("it ended")),
			"berth: the write may have happened or not: it ended\nCheck the result with 'berth status' before " +
				"you repeat the command.\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stderr strings.Builder
			a := session.New(nil, nil, &stderr)
			if a.ExitCode(t.Context(), c.err); stderr.String() != c.want {
				t.Errorf("\n got %q\nwant %q", stderr.String(), c.want)
			}
		})
	}
}

// TestForeignServersAreReported connects to servers that are not Berth, or only partly. Each error comes with a hint.
func TestForeignServersAreReported(t *testing.T) {
	t.Parallel()
	const foreign = "Another program, or a proxy in front of the server, answers at ADDR: name the server " +
		"with --addr or BERTH_ADDR.\n"
	raw := func(answer string) func(net.Conn) {
		return func(c net.Conn) {
			_, _ = c.Read(make([]byte, 4096))
			_, _ = c.Write([]byte(answer))
			_ = c.Close()
		}
	}
	plainHTTP := func(status, kind, body string, length int) func(net.Conn) {
		return raw(fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
			status, kind, length, body))
	}
	for _, c := range []struct {
		name, scheme string
		words        []string
		answer       func(net.Conn)
		want         string
	}{
		{
			"another protocol", "http",
			[]string{"ps"},
			raw("SSH-2.0-x\r\n"),
			"berth: no server at ADDR: the program at this address does not speak HTTP\n" + foreign,
		},
		{
			"cut off", "http",
			[]string{"ps"},
			plainHTTP("200 OK", "application/json", `{"items":[`, 1000),
			"berth: read the answer to GET /v1/tasks from ADDR: it ended too early\nThe connection was " +
				"cut, or the server ended: try again.\n",
		},
		{
			"a page", "http",
			[]string{"ps"},
			plainHTTP("200 OK", "text/html", "<html></html>", 13),
			"berth: read the answer to GET /v1/tasks from ADDR: it is not JSON (invalid character '<' " +
				"looking for beginning of value)\n" + foreign,
		},
		{
			"led elsewhere", "http",
			[]string{"ps"},
			plainHTTP("302 Found", "text/plain", "", 0),
			"berth: the answer is not of a Berth server: 302 Found\n" + foreign,
		},
		{
			"a proxy", "http",
			[]string{"ps"},
			plainHTTP("502 Bad Gateway", "text/html", "<html>", 6),
			"berth: the answer is not of a Berth server: 502 Bad Gateway\n" + foreign,
		},
		{
			"no TLS", "https",
			[]string{"ps"},
			raw("HTTP/1.1 400 Bad Request\r\n\r\n"),
			"berth: no server at ADDR: http: server gave HTTP response to HTTPS client\n" +
				"What answers there does not speak https. Other machines are served on port 7071; http is " +
				"for loopback addresses.\n",
		},
		{
			"a write whose answer is lost", "http",
			[]string{"token", "create", "--role", "viewer"},
			plainHTTP("200 OK", "application/json", `{"token":`, 1000),
			"berth: the write may have happened or not: read the answer to POST /v1/tokens from ADDR: it " +
				"ended too early\nCheck the result with 'berth status' before you repeat the command.\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			go func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					go c.answer(conn)
				}
			}()
			addr := c.scheme + "://" + l.Addr().String()
			var stdout, stderr strings.Builder
			a := session.New(strings.NewReader(""), &stdout, &stderr)
			a.Env = func(name string) string { return map[string]string{"BERTH_ADDR": addr, "BERTH_TOKEN": "x"}[name] }
			code := Run(t.Context(), a, c.words)
			if got := strings.ReplaceAll(stderr.String(), addr, "ADDR"); code != session.ExitFault || got != c.want {
				t.Errorf("exit code %d\n got %q\nwant %q", code, got, c.want)
			}
		})
	}
}

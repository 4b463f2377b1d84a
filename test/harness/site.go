package harness

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// NodeName is the name of the node of an agent that Agent starts.
const NodeName = "node"

// Site is one data directory with the processes that serve from it. Its methods are the steps of stories: start, kill,
// command, wait and check.
type Site struct {
	commands
	// ServerDir and AgentDir are the data directories; dev uses ServerDir for both.
	ServerDir, AgentDir string
	// Executor is Process or Containerd.
	Executor string
	// Strict starts servers and agents without the permissive flags. Most tests need these flags: clusters have all
	// permissions, plain programs run without isolation, and nodes lend any path.
	Strict bool

	daemons []*Daemon
	// firstPort is the first of the ports that the site's tasks are assigned, 0 until an agent starts.
	firstPort int
	images    bool // the node has the images that tests use
	left      leftovers
}

// New returns a site in which nothing runs yet.
func New(tb testing.TB, executor string) *Site {
	tb.Helper()
	dir, err := os.MkdirTemp("", "berth-site-") //nolint:usetesting // the path is short, and removed after the processes have ended
	if err != nil {
		tb.Fatal(err)
	}
	s := &Site{
		commands:  commands{Dir: dir, Socket: filepath.Join(dir, "api.sock"), tb: tb},
		ServerDir: filepath.Join(dir, "data"), AgentDir: filepath.Join(dir, "node"), Executor: executor,
		left: leftovers{tb: tb, pids: map[int]uint64{}, uuids: map[string]bool{}},
	}
	s.left.folders = func() []string { return []string{s.Dir, s.ServerDir, s.AgentDir} }
	for _, name := range []string{"home", "run"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			tb.Fatal(err)
		}
	}
	tb.Cleanup(s.close)
	return s
}

// Dev starts a control plane and an agent in one process and waits until they serve.
func (s *Site) Dev(flags ...string) *Daemon {
	s.tb.Helper()
	s.AgentDir = s.ServerDir
	d := s.StartDev(flags...)
	d.ready()
	s.loadImages()
	return d
}

// StartDev is Dev without the waiting.
func (s *Site) StartDev(flags ...string) *Daemon {
	s.tb.Helper()
	return s.keep(s.start(slices.Concat([]string{
		"dev", "--data-dir", s.ServerDir, "--socket", s.Socket, "--http", "127.0.0.1:0", "--executor", s.Executor,
	}, s.reservedPorts(flags), flags)...))
}

// Standalone starts a standalone node and waits until it serves.
func (s *Site) Standalone(flags ...string) *Daemon {
	s.tb.Helper()
	d := s.StartStandalone(flags...)
	d.ready()
	s.loadImages()
	return d
}

// StartStandalone is Standalone without the waiting. A node that moved to a fleet has no server to wait for.
func (s *Site) StartStandalone(flags ...string) *Daemon {
	s.tb.Helper()
	s.ServerDir = filepath.Join(s.AgentDir, "server")
	return s.keep(s.start(slices.Concat([]string{
		"standalone", "--data-dir", s.AgentDir, "--socket", s.Socket, "--name", NodeName, "--executor", s.Executor,
		"--log-level", logLevel(),
	}, s.ServerDefaults(), s.AgentDefaults(flags...), s.reservedPorts(flags), flags)...))
}

// Server starts a control plane and waits until it serves.
func (s *Site) Server(flags ...string) *Daemon {
	s.tb.Helper()
	d := s.keep(s.start(slices.Concat([]string{
		"server", "--data-dir", s.ServerDir, "--listen", "unix://" + s.Socket, "--log-level", logLevel(),
	}, s.ServerDefaults(), flags)...))
	d.ready()
	return d
}

// Agent starts the agent of the site's node and waits until the server calls the node ready.
func (s *Site) Agent(flags ...string) *Daemon {
	s.tb.Helper()
	d := s.StartAgent(flags...)
	c := s.Client()
	testkit.Eventually(s.tb, readyLimit, func() error {
		if !d.Alive() {
			s.tb.Fatalf("the agent has ended:\n%s", d.Output())
		}
		n, err := c.Node(s.tb.Context(), NodeName)
		if err == nil && n.State != "ready" {
			err = fmt.Errorf("the node is %s: %s", n.State, n.Reason)
		}
		return err
	})
	s.loadImages()
	return d
}

// StartAgent is Agent without the waiting.
func (s *Site) StartAgent(flags ...string) *Daemon {
	s.tb.Helper()
	return s.keep(s.start(slices.Concat([]string{
		"agent", "--data-dir", s.AgentDir, "--server", "unix://" + s.Socket, "--name", NodeName,
		"--executor", s.Executor, "--log-level", logLevel(),
	}, s.AgentDefaults(flags...), s.reservedPorts(flags), flags)...))
}

// ServerDefaults are those with which tasks may do all that they can, unless the site is Strict.
func (s *Site) ServerDefaults() []string {
	if s.Strict {
		return nil
	}
	return []string{"--default-permissions", "all"}
}

// AgentDefaults are the same for agents. flags are the flags of the test.
func (s *Site) AgentDefaults(flags ...string) (all []string) {
	if s.Strict {
		return nil
	}
	if s.Executor == Process {
		all = append(all, "--process-isolation", "none")
	}
	if !slices.Contains(flags, "--host-path") {
		all = append(all, "--host-path", "/")
	}
	return all
}

// Start starts berth with any arguments, to be ended with the site.
func (s *Site) Start(args ...string) *Daemon {
	s.tb.Helper()
	return s.keep(s.start(args...))
}

func (s *Site) keep(d *Daemon) *Daemon {
	s.daemons = append(s.daemons, d)
	return d
}

// loadImages gives a new node the image that the tests use, where it runs images.
func (s *Site) loadImages() {
	s.tb.Helper()
	if s.Executor != Containerd || s.images {
		return
	}
	s.Berth("image", "load", shellImage(s.tb, s.Dir)).Want(s.tb, 0)
	s.images = true
}

// Client returns a client of the site's server.
func (s *Site) Client() *client.Client {
	s.tb.Helper()
	c, err := client.New(client.Config{Addr: s.address()})
	if err != nil {
		s.tb.Fatal(err)
	}
	s.tb.Cleanup(c.Close)
	return c
}

// Scaled returns a deadline or an interval of a definition for a machine as busy as this one is now, see
// testkit.Scaled.
func Scaled(d time.Duration) cluster.Duration {
	return cluster.Duration(testkit.Scaled(d).Round(100 * time.Millisecond))
}

// scaledSpan is a duration of a manifest that is stretched on a slow machine: scaled(2s).
var scaledSpan = regexp.MustCompile(`scaled\(([0-9a-z.]+)\)`)

// Write writes a file of the site and returns its path. In a manifest, Image is removed if the executor runs no images.
// "scaled(2s)" becomes 2s on an idle machine and more on a busy one, see Scaled.
func (s *Site) Write(name, text string) string {
	s.tb.Helper()
	text = scaledSpan.ReplaceAllStringFunc(text, func(span string) string {
		d, err := time.ParseDuration(scaledSpan.FindStringSubmatch(span)[1])
		if err != nil {
			s.tb.Fatalf("%s: %s: %v", name, span, err)
		}
		return Scaled(d).String()
	})
	if s.Executor == Process {
		text = strings.ReplaceAll(text, "    image: "+Image+"\n", "")
	}
	path := filepath.Join(s.Dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.tb.Fatal(err)
	}
	return path
}

// Tasks returns all attempts of a service or job, including ended ones.
func (s *Site) Tasks(f client.TaskFilter) []api.TaskView {
	s.tb.Helper()
	c := s.Client()
	f.All = true
	page, err := c.Tasks(s.tb.Context(), f, client.ListOptions{})
	if err != nil {
		s.tb.Fatalf("list tasks: %v", err)
	}
	s.left.note(page.Items)
	return page.Items
}

// Eventually polls until check returns nil, and fails the test after a limit.
func (s *Site) Eventually(limit time.Duration, check func() error) {
	s.tb.Helper()
	testkit.Eventually(s.tb, limit, func() error {
		err := check()
		if errors.Is(err, client.ErrUnreachable) {
			for _, d := range s.daemons {
				if !d.Alive() {
					err = fmt.Errorf("%w\nberth %s has ended:\n%s", err, d.args[0], d.Output())
				}
			}
		}
		return err
	})
}

// logLevel is the log level of servers and agents.
func logLevel() string { return cmp.Or(os.Getenv(LogVariable), "warn") }

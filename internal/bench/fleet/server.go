package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// server is a `berth server` that this program started.
type server struct {
	cmd            *exec.Cmd
	dir            string
	address, token string
}

func startServer(ctx context.Context, o options, stderr io.Writer) (*server, error) {
	dir, err := os.MkdirTemp("", "berth-fleet-")
	if err != nil {
		return nil, err
	}
	s := &server{dir: dir}
	s.cmd = exec.CommandContext(ctx, o.berth, "server", "--data-dir", dir, "--listen", "127.0.0.1:0", "--log-level", "warn", "--cpu-profile", o.profile)
	s.cmd.Stderr = stderr
	s.cmd.Cancel = func() error { return nil } // stop ends it
	s.cmd.WaitDelay = 10 * time.Second
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := s.cmd.Start(); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	var line string
	if _, err := fmt.Fscanf(out, "berth: ready at %s\n", &line); err != nil {
		s.stop()
		return nil, fmt.Errorf("the server did not become ready: %w", err)
	}
	s.address = line
	token, err := os.ReadFile(filepath.Join(dir, "token"))
	s.token = strings.TrimSpace(string(token))
	return s, err
}

// stop ends the server and removes its data.
func (s *server) stop() {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir)
}

func (s *server) cpu() float64 { return process(s.cmd.Process.Pid).cpu() }
func (s *server) rss() int     { return process(s.cmd.Process.Pid).rss() }

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/freeport"
	"github.com/berthd/berth/internal/pause"
)

// consulServer is a Consul server that holds the state of the measured server, alone in its datacenter.
type consulServer struct {
	cmd     *exec.Cmd
	address string
	before  consulFigures // before the load
}

// consulFigures is what a Consul server has done since its start.
type consulFigures struct {
	at      time.Time
	cpu     float64 // seconds
	rss     int     // bytes
	entries float64 // of its log: writes and its own upkeep
}

// idleTime is how long the cost of the fleet without tasks is measured.
const idleTime = 30 * time.Second

// startConsul starts a Consul server with its data in a folder, which is synced to disk as always.
func startConsul(ctx context.Context, program, dir string, stderr io.Writer) (*consulServer, error) {
	var ports []int
	for range 3 {
		address, err := freeport.Address(ctx)
		if err != nil {
			return nil, err
		}
		_, text, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		port, err := strconv.Atoi(text)
		if err != nil {
			return nil, err
		}
		ports = append(ports, port)
	}
	off := map[string]any{"enabled": false}
	config, err := json.Marshal(map[string]any{
		"node_name": "consul", "server": true, "bootstrap_expect": 1, "data_dir": filepath.Join(dir, "data"),
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "log_level": "warn", "disable_update_check": true,
		"connect": off, "ui_config": off, "performance": map[string]any{"raft_multiplier": 1},
		"ports": map[string]any{
			"http": ports[0], "server": ports[1], "serf_lan": ports[2], "serf_wan": -1, "dns": -1, "grpc": -1,
			"grpc_tls": -1, "https": -1,
		},
	})
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "consul.json")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, err
	}
	c := &consulServer{address: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	c.cmd = exec.CommandContext(ctx, program, "agent", "-config-file", file)
	c.cmd.Stderr = stderr
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, until(ctx, func() bool {
		var leader string
		return c.get(ctx, "status/leader", &leader) == nil && leader != ""
	})
}

// stop ends the server.
func (c *consulServer) stop() {
	_ = c.cmd.Process.Kill() // it may have ended
	_ = c.cmd.Wait()         // as above
}

func (c *consulServer) get(ctx context.Context, path string, out any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.address+"/v1/"+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return json.NewDecoder(resp.Body).Decode(out)
}

// figures returns what the server has done.
func (c *consulServer) figures(ctx context.Context) (consulFigures, error) {
	var self struct {
		Stats struct {
			Raft struct {
				Index string `json:"commit_index"`
			} `json:"raft"`
		}
	}
	if err := c.get(ctx, "agent/self", &self); err != nil {
		return consulFigures{}, err
	}
	entries, err := strconv.ParseFloat(self.Stats.Raft.Index, 64)
	p := process(c.cmd.Process.Pid)
	return consulFigures{time.Now(), p.cpu(), p.rss(), entries}, err
}

// idle measures what the fleet costs the server before it has tasks, and prints a row.
func (c *consulServer) idle(ctx context.Context, o options, out io.Writer) error {
	before, err := c.figures(ctx)
	if err != nil {
		return err
	}
	if err := pause.For(ctx, idleTime); err != nil {
		return err
	}
	if c.before, err = c.figures(ctx); err != nil {
		return err
	}
	seconds := c.before.at.Sub(before.at).Seconds()
	fmt.Fprintf(out, "| Consul with %d agents without tasks | CPU, %% of a core | log entries/s | resident, MB "+
		"|\n", o.agents)
	fmt.Fprintf(out, "|---|---|---|---|\n| for %s | %.1f | %.1f | %d |\n\n", idleTime,
		100*(c.before.cpu-before.cpu)/seconds, (c.before.entries-before.entries)/seconds, c.before.rss>>20)
	return nil
}

// loaded prints what the load cost the server.
func (c *consulServer) loaded(ctx context.Context, tasks int, out io.Writer) error {
	after, err := c.figures(ctx)
	if err != nil {
		return err
	}
	cpu, entries := after.cpu-c.before.cpu, after.entries-c.before.entries
	fmt.Fprintf(out, "\n| Consul until all run | CPU, s | µs a task | log entries | resident, MB |\n")
	fmt.Fprintf(out, "|---|---|---|---|---|\n| %d tasks | %.2f | %.0f | %.0f | %d |\n\n", tasks, cpu,
		cpu/float64(tasks)*1e6, entries, after.rss>>20)
	return nil
}

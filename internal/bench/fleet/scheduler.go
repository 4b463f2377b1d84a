package main

import (
	"context"
	"io"
	"os/exec"
	"path/filepath"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
)

// schedulerName is the name of a program that places the tasks in place of the server.
const schedulerName = "program"

// startScheduler gives the domain default to an external scheduler, which it starts. The program ends with the context.
func startScheduler(ctx context.Context, s *server, c *client.Client, program string, out io.Writer) error {
	_, err := c.PutDomain(ctx, api.Domain{
		Name: cluster.DefaultDomain, Scheduler: &api.DomainScheduler{Type: api.SchedulerExternal, Name: schedulerName},
	}, client.Condition{})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, "-server", s.address, "-token-file", filepath.Join(s.dir, "token"),
		"-domain", cluster.DefaultDomain, "-name", schedulerName)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	go func() { _ = cmd.Wait() }() // it is killed with the context
	return until(ctx, func() bool {
		v, err := c.Domain(ctx, cluster.DefaultDomain)
		return err == nil && v.Claim != nil && v.Claim.Holder == schedulerName
	})
}

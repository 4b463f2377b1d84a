// Command fleet measures a server with many agents: real HTTP/2 connections of fake agents in processes of their own.
// It has five measurements.
//
// Placements, end to end: a real `berth server` with its embedded etcd and fsync, and agents that pass the start
// barrier of every task they are given and report it running.
//
//	fleet -berth bin/berth -agents 5000 -jobs 20 -tasks 1000
//	fleet -berth bin/berth -agents 5000 -load services -jobs 5000 -tasks 1 -clients 32
//	fleet -berth bin/berth -agents 5000 -load racks
//	fleet -berth bin/berth -agents 1000 -scheduler bin/binpack
//	fleet -berth bin/berth -agents 500 -consul /usr/local/bin/consul
//
// It prints one row: how many tasks a second were placed (the event log has them, so they are durable), how many the
// agents had received, and how many were acknowledged as running, all counted from the first submission; and what each
// task cost the server. With -rest it prints what memory the server holds before and after. All connections of agents
// are HTTP/2 with mutual TLS, one for each; with -shared that many agents share one to the server's socket, which
// measures fleets of more agents than a process may open files.
//
// Tasks that end as soon as they have begun, with many others that wait behind them, and services beside them:
//
//	fleet -berth bin/berth -agents 500 -brief 60s -jobs 1 -tasks 1000000
//
// Placements on a large fleet that is full of tasks, which are there as records alone, without agents:
//
//	fleet -filled 1000000 -agents 100000 -latency 200
//
// The changes that agents receive of a service that all of them follow, while its tasks fail and become healthy again:
//
//	fleet -follow -agents 5000 -tasks 1000 -rate 20
//
// It prints a row for single changes and one for many a second: the cost of each for the server beyond the cost at
// rest, the bytes for each agent, and the delay until the agents have it. The agents' own work is not counted, but
// delays the rest on one machine.
//
// Connected agents, for a while: idle ones, over TLS, with their heartbeats and open streams. Some of them come and go.
//
//	fleet -hold 10m -agents 10000 -processes 4 -churn 60
//
// It prints a row now and then: what the agents did, and what CPU and memory the servers took since the row before.
// Without -addresses the server is one of its own, a dispatcher over a store in memory: what is measured is the agents'
// part alone; with -whole it is a leader with its embedded etcd, without the rest of the API. With -addresses the
// agents spread over real servers, -pids names their processes, and -authority the directory of their certificate
// authority, which has to be at hand to make that many nodes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fleet:", err)
		os.Exit(1)
	}
}

type options struct {
	berth               string
	load                string
	scheduler, consul   string
	agents, jobs, tasks int
	clients, latency    int
	shared, filled      int
	limit, rest         time.Duration
	profile             string
	profileFor          time.Duration

	follow bool
	rate   int

	brief       time.Duration
	hold, every time.Duration
	after       time.Duration
	heap        time.Duration
	processes   int
	churn       float64
	addresses   string
	pids        string
	authority   string
	busy        bool
	whole       bool

	// Settings of the processes that this one starts.
	serve bool
	first int
	work  bool
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	var o options
	flags := flag.NewFlagSet("fleet", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&o.berth, "berth", "bin/berth", "the berth binary")
	flags.IntVar(&o.agents, "agents", 1000, "how many fake agents")
	flags.StringVar(&o.load, "load", "jobs",
		"what is submitted: jobs, racks (jobs spread over 25 values of a label) or services")
	flags.StringVar(&o.scheduler, "scheduler", "", "a program that places the tasks, in place of the server")
	flags.StringVar(&o.consul, "consul", "", "a Consul binary: a server of it holds the state")
	flags.IntVar(&o.jobs, "jobs", 20, "how many jobs, or services")
	flags.IntVar(&o.tasks, "tasks", 1000, "tasks of each")
	flags.IntVar(&o.clients, "clients", 1, "how many clients submit them")
	flags.IntVar(&o.latency, "latency", 0,
		"submit so many services of one task afterwards, one after the other, and print how long each took "+
			"to be placed")
	flags.IntVar(&o.shared, "shared", 0,
		"have so many agents, at most 100, share a connection to the server's socket; 0 gives each its own over TLS")
	flags.IntVar(&o.filled, "filled", 0,
		"have so many tasks run already, on nodes without agents, in a server of this process")
	flags.BoolVar(&o.follow, "follow", false,
		"measure what it costs to send all agents the changes of a service of so many tasks")
	flags.IntVar(&o.rate, "rate", 20, "how many tasks of it change a second")
	flags.DurationVar(&o.rest, "rest", 0,
		"wait before the load and after it, and print what memory the server holds then")
	flags.StringVar(&o.profile, "cpu-profile", "",
		"file for a CPU profile of the server under the load; beside it, named .heap, one of the memory")
	flags.DurationVar(&o.profileFor, "profile-for", 5*time.Second, "how long the CPU is measured under the load")
	flags.DurationVar(&o.after, "profile-after", 0, "when it begins, while agents are held")
	flags.DurationVar(&o.limit, "limit", 5*time.Minute, "give up placements after")
	flags.DurationVar(&o.heap, "heap", 0,
		"how often an own server collects its garbage and prints what is in use, while agents are held")
	flags.DurationVar(&o.brief, "brief", 0,
		"measure for this long the rate of tasks that end as soon as they have begun, with the others waiting")
	flags.DurationVar(&o.hold, "hold", 0, "keep agents connected for this long, instead of measuring placements")
	flags.DurationVar(&o.every, "every", 10*time.Second, "how often to print a row")
	flags.IntVar(&o.processes, "processes", 2, "how many processes the agents live in")
	flags.Float64Var(&o.churn, "churn", 0, "how many agents a minute go away and come back")
	flags.BoolVar(&o.busy, "busy", false, "agents report as busy nodes do")
	flags.BoolVar(&o.whole, "whole", false, "the own server has a durable store and decides, as a leader does")
	flags.StringVar(&o.addresses, "addresses", "", "addresses of real servers, with commas between")
	flags.StringVar(&o.pids, "pids", "", "their processes, with commas between")
	flags.StringVar(&o.authority, "authority", "", "directory of their ca.crt and ca.key")
	flags.BoolVar(&o.serve, "serve", false, "be the server (used by the program itself)")
	flags.BoolVar(&o.work, "work", false, "be some of the agents (used by the program itself)")
	flags.IntVar(&o.first, "first", 0, "number of the first agent (used by the program itself)")
	if err := flags.Parse(args); err != nil {
		return err
	}
	switch {
	case o.serve:
		return serve(ctx, o, stdout, stderr)
	case o.shared < 0 || o.shared > maxShared:
		return fmt.Errorf("-shared: from 0 to %d", maxShared)
	case o.work:
		return work(ctx, o, stdout)
	case o.follow:
		return follow(ctx, o, stdout, stderr)
	case o.filled > 0:
		return filled(ctx, o, stdout)
	case o.hold == 0:
		return place(ctx, o, stdout, stderr)
	case o.addresses != "" && o.authority == "":
		return errors.New("with -addresses, -authority says who signs the agents' certificates")
	}
	return hold(ctx, o, stdout, stderr)
}

// list splits a text at its commas.
func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

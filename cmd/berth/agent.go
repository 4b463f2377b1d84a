package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
	"github.com/berthd/berth/internal/version"
)

// nodeConfig is what an agent needs.
type nodeConfig struct {
	name      string
	dataDir   string
	server    string // address of the server
	token     string
	executors *runners
	labels    cluster.Labels
	log       *slog.Logger
}

// runNode runs an agent until the context ends.
func runNode(ctx context.Context, c nodeConfig) error {
	client, err := transport.NewClient(transport.ClientConfig{Address: c.server, Token: c.token})
	if err != nil {
		return err
	}
	defer client.Close()
	a, err := agent.New(agent.Config{
		Name:      c.name,
		DataDir:   c.dataDir,
		Source:    agent.FromClient(client),
		Executors: c.executors.list,

		Credentials: c.executors.logins,
		Logger:      c.log,
		Labels:      c.labels,
		Version:     version.String(),
	})
	if err != nil {
		return err
	}
	err = a.Run(ctx)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

// machineName returns the node's name where none is given: the machine's, in the form that names have.
func machineName() string {
	host, err := os.Hostname()
	if err != nil {
		return "node"
	}
	host = strings.ToLower(strings.ReplaceAll(host, "_", "-"))
	if !cluster.ValidNodeName(host) {
		return "node"
	}
	return host
}

// newAgentCommand returns `berth agent`.
func newAgentCommand() *cobra.Command {
	var server, tokenFile, dataDir, name, level string
	var labels []string
	var executors executorConfig
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Run the agent of this machine",
		Long: "Runs the agent of this machine: it connects to a server, runs the tasks that are placed here and reports on them.\n" +
			"Ending it ends no task; the next agent with the same data directory finds them.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(cmd.ErrOrStderr(), level)
			if err != nil {
				return err
			}
			if dataDir, err = filepath.Abs(dataDir); err != nil { // supervisors have a folder of their own
				return err
			}
			c := nodeConfig{name: name, dataDir: filepath.Join(dataDir, "agent"), server: server, log: log}
			if c.labels, err = parseLabels(labels); err != nil {
				return err
			}
			if tokenFile != "" {
				b, err := os.ReadFile(tokenFile)
				if err != nil {
					return fmt.Errorf("read the token file: %w", err)
				}
				c.token = strings.TrimSpace(string(b))
			}
			executors.dataDir, executors.log, executors.say = dataDir, log, cmd.ErrOrStderr()
			if c.executors, err = openExecutors(cmd.Context(), executors); err != nil {
				return err
			}
			err = runNode(cmd.Context(), c)
			if c.executors.idle(cmd.Context()) {
				err = errors.Join(err, c.executors.stopAll(cmd.Context()))
			}
			return errors.Join(err, c.executors.close())
		},
	}
	cmd.Flags().StringVar(&server, "server", "unix://"+defaultSocket(), "address of the server, unix:///path or http://host:port (default "+socketText+")")
	cmd.Flags().StringVar(&tokenFile, "token-file", "", "file with the token for a server on loopback HTTP")
	cmd.Flags().StringVar(&dataDir, "data-dir", defaultDataDir(), "folder for the agent's state, logs and volumes (default "+dataDirText+")")
	cmd.Flags().StringVar(&name, "name", machineName(), "name of the node (default the machine's)")
	cmd.Flags().StringArrayVar(&labels, "label", nil, "label of the node, key=value; may be given several times")
	cmd.Flags().StringVar(&level, "log-level", "info", "debug, info, warn or error")
	executors.flags(cmd)
	ofMachine(cmd, "server", "data-dir", "name")
	return cmd
}

func parseLabels(list []string) (cluster.Labels, error) {
	labels := cluster.Labels{}
	for _, l := range list {
		k, v, ok := strings.Cut(l, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("label %q: want key=value", l)
		}
		labels[k] = v
	}
	return labels, nil
}

// Package cli assembles the command line: the tree of commands, the manual pages and the reference.
package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/apply"
	"github.com/berthd/berth/internal/cli/endpoint"
	"github.com/berthd/berth/internal/cli/host"
	"github.com/berthd/berth/internal/cli/login"
	"github.com/berthd/berth/internal/cli/machine"
	"github.com/berthd/berth/internal/cli/node"
	"github.com/berthd/berth/internal/cli/operator"
	"github.com/berthd/berth/internal/cli/query"
	"github.com/berthd/berth/internal/cli/rebalance"
	"github.com/berthd/berth/internal/cli/resource"
	"github.com/berthd/berth/internal/cli/service"
	"github.com/berthd/berth/internal/cli/serving"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/simulate"
	"github.com/berthd/berth/internal/cli/stream"
	"github.com/berthd/berth/internal/cli/top"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cli/watch"
	"github.com/berthd/berth/internal/version"
	"github.com/berthd/berth/internal/wording"
)

const rootLong = "Berth runs services and jobs as containers on machines.\n\n" +
	"  berth dev                    start a complete Berth on this machine\n" +
	"  berth run web.yaml           apply a manifest and wait until everything is healthy\n" +
	"  berth status                 show the state of everything, problems first\n" +
	"  berth explain web            show the reason\n\n" +
	"A context has the address of a server, with the token and the certificate authority: see 'berth login'\n" +
	"and 'berth context'. 'berth dev' adds its own.\n" +
	"The server is the first of: --addr, --context, BERTH_ADDR, BERTH_CONTEXT, the current context, the\n" +
	"socket berth/api.sock in XDG_RUNTIME_DIR, /run/berth/api.sock, and http://127.0.0.1:7373. With several\n" +
	"addresses, separated by commas, the next one is used when one does not answer.\n" +
	"Over http and https the token comes from --token-file, the context, BERTH_TOKEN or BERTH_TOKEN_FILE.\n" +
	"Over https, --ca-file, --ca-hash or the context names the certificate authority of the servers.\n\n" +
	"A cluster groups services, jobs, crons and secrets, as a namespace does elsewhere; it is no group of\n" +
	"machines. The cluster is the first of: -n, BERTH_CLUSTER, that of the context, and default. A name such\n" +
	"as web is looked up in it; prod/web or prod/service/web is the name in another one. Lists show the\n" +
	"chosen cluster, or all clusters if none of the first three names one; -A shows all.\n\n" +
	"Exit codes:\n" +
	"  0    done\n" +
	"  1    the answer is no: run: not healthy or failed; rollout status: failed or rolled back;\n" +
	"       plan: there are changes; validate: a fault; wait: the condition was not met\n" +
	"  2    the command could not be carried out: wrong arguments, no server, request refused\n" +
	"  130  interrupted\n" +
	"'berth converge' exits with 0 if nothing changed, with 2 after a change, and with 1 for any failure.\n" +
	"'berth exec' exits with the code of its command, or with 125 if it could not run the command. 'berth\n" +
	"attach' exits with the code of the container."

// newRootCommand builds the tree of commands.
func newRootCommand(sess *session.Session) *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "Run services and jobs on machines",
		Long:          rootLong,
		Version:       version.Current().String(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          session.RunGroup,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := session.CheckFlags(cmd); err != nil {
				return err
			}
			if err := sess.CheckCluster(cmd); err != nil {
				return err
			}
			if err := session.CheckConnection(cmd); err != nil {
				return err
			}
			sess.SetHomeCluster()
			return sess.CheckOutput(cmd)
		},
	}
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), "FlagUsages", "FlagUsagesWrapped 100"))
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetIn(sess.Stdin)
	root.SetOut(sess.Stdout)
	root.SetErr(sess.Stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// an unknown command counts before an unknown flag
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 {
			return session.RunGroup(cmd, args)
		}
		return &session.UsageError{Command: cmd.CommandPath(), Message: session.FlagErrorText(cmd, err)}
	})
	addGlobalFlags(root, sess)
	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "inspect", Title: "Inspect:"},
		&cobra.Group{ID: "change", Title: "Change:"}, &cobra.Group{ID: "serve", Title: "Serve:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", apply.NewRunCommand(sess), apply.NewPlanCommand(sess), apply.NewConvergeCommand(sess),
		simulate.NewSimulateCommand(sess),
		apply.NewValidateCommand(sess), apply.NewInitCommand(sess), apply.NewFieldsCommand(sess),
		apply.NewDownCommand(sess),
		wait.NewWaitCommand(sess))
	add("inspect", query.NewStatusCommand(sess), query.NewPsCommand(sess), query.NewExplainCommand(sess),
		query.NewQueueCommand(sess),
		stream.NewLogsCommand(sess), query.NewEventsCommand(sess),
		query.NewInspectCommand(sess), apply.NewDiffCommand(sess), top.NewTopCommand(sess), node.NewNodeCommand(sess),
		host.NewHostCommand(sess),
		endpoint.NewEndpointCommand(sess), endpoint.NewAddressesCommand(sess), node.NewPoolCommand(sess),
		node.NewDomainCommand(sess), machine.NewProfileCommand(sess))
	add("change", service.NewScaleCommand(sess), service.NewStopCommand(sess), service.NewStartCommand(sess),
		service.NewRestartCommand(sess), service.NewRetryCommand(sess), service.NewHoldCommand(sess),
		service.NewReleaseCommand(sess), service.NewPriorityCommand(sess),
		service.NewRolloutCommand(sess), service.NewPromoteCommand(sess), rebalance.NewRebalanceCommand(sess),
		resource.NewReservationCommand(sess),
		resource.NewSecretCommand(sess), service.NewCronCommand(sess), resource.NewDefinitionCommand(sess),
		apply.NewDeleteCommand(sess), apply.NewEditCommand(sess),
		stream.NewExecCommand(sess),
		stream.NewCheckCommand(sess), stream.NewAttachCommand(sess), stream.NewPortForwardCommand(sess),
		stream.NewCopyCommand(sess), resource.NewImageCommand(sess),
		resource.NewVolumeCommand(sess))
	add("serve", serving.NewDevCommand(), serving.NewStandaloneCommand(), serving.NewServerCommand(sess),
		serving.NewAgentCommand(sess), machine.NewMachineCommand(sess),
		login.NewContextCommand(sess), login.NewLoginCommand(sess),
		operator.NewTokenCommand(sess),
		operator.NewOperatorCommand(sess))
	root.AddCommand(newVersionCommand(sess), newManCommand(sess), newReferenceCommand())
	markLists(sess, root)
	markClustered(root)
	markServing(root)
	addExamples(root, commandExamples())
	checkTopics(root)
	return root
}

// list is a command that lists objects, with the streams of their changes.
type list struct {
	path    string
	streams []watch.Stream
}

// lists returns the commands that list objects.
func lists() []list {
	services := func(ctx context.Context, c *client.Client) client.Changes { return c.ServiceChanges(ctx, "", "") }
	jobs := func(ctx context.Context, c *client.Client) client.Changes { return c.JobChanges(ctx, "", "") }
	crons := func(ctx context.Context, c *client.Client) client.Changes { return c.CronChanges(ctx, "", "") }
	endpoints := func(ctx context.Context, c *client.Client) client.Changes { return c.EndpointChanges(ctx, "", "") }
	nodes := func(ctx context.Context, c *client.Client) client.Changes { return c.NodeChanges(ctx, "") }
	tasks := func(ctx context.Context, c *client.Client) client.Changes {
		return c.TaskChanges(ctx, client.TaskFilter{})
	}
	rebalancings := func(ctx context.Context, c *client.Client) client.Changes { return c.RebalancingChanges(ctx) }
	return []list{
		{"ps", []watch.Stream{tasks}},
		{"queue", []watch.Stream{tasks}},
		{"node ls", []watch.Stream{nodes}},
		{"pool ls", []watch.Stream{nodes}},
		{"domain ls", []watch.Stream{nodes}},
		{"profile ls", []watch.Stream{nodes}},
		{"token ls", nil},
		{"rebalance list", []watch.Stream{rebalancings}},
		{"reservation ls", nil},
		{"secret ls", nil},
		{"cron ls", []watch.Stream{crons}},
		{"endpoint ls", []watch.Stream{endpoints}},
		{"context ls", nil},
		{"cron history", []watch.Stream{jobs}},
		{"definition ls", []watch.Stream{services, jobs, crons}},
		{"image ls", nil},
		{"volume ls", nil},
		{"host ps", nil},
		{"server members", nil},
		{pathOfStatus, []watch.Stream{services, jobs, crons, nodes}},
	}
}

// pathOfStatus is the path of a command that shows several lists, and therefore has no -o name.
const pathOfStatus = "status"

// markLists marks the commands that list objects, and gives them --watch.
func markLists(sess *session.Session, root *cobra.Command) {
	for _, l := range lists() {
		cmd, rest, err := root.Find(strings.Fields(l.path))
		if err != nil || len(rest) > 0 {
			panic("there is no command " + l.path)
		}
		if l.path != pathOfStatus {
			session.MarkList(cmd)
		}
		watch.AddFlag(sess, cmd, l.streams...)
	}
}

// markClustered marks the commands that take or list objects of a cluster.
func markClustered(root *cobra.Command) {
	for _, path := range []string{
		"wait", "status", "ps", "queue", "explain", "logs", "events", "inspect", "top", "scale", "stop", "start",
		"restart",
		"rollout status", "rollout pause", "rollout resume", "rollout undo", "rollout history", "promote", "rebalance",
		"secret set", "secret ls", "secret rm", "cron ls", "cron status", "cron run", "cron suspend", "cron resume",
		"cron history", "delete", "exec", "check pass", "check warn", "check fail", "attach", "port-forward", "cp",
		"volume ls", "endpoint ls", "addresses", "context add", "context use", "login",
	} {
		cmd, rest, err := root.Find(strings.Fields(path))
		if err != nil || len(rest) > 0 {
			panic("there is no command " + path)
		}
		session.MarkClustered(cmd)
	}
}

// markServing marks the commands that call no server.
func markServing(root *cobra.Command) {
	for path, instead := range map[string]string{ // order-free: each marks its own command
		"dev":        "--http is the address that it serves",
		"standalone": "--http is the address that it serves",
		"server":     "--listen is an address that it serves",
		"agent":      "--server names its servers",
	} {
		cmd, _, err := root.Find([]string{path})
		if err != nil || cmd == root {
			panic("there is no command " + path)
		}
		session.MarkServing(cmd, instead)
	}
}

// addGlobalFlags adds the flags of all commands.
func addGlobalFlags(root *cobra.Command, sess *session.Session) {
	root.PersistentFlags().StringSliceVar(&sess.Addrs, "addr", nil,
		"`addresses` of the servers, separated by commas: https://host:port, http://host:port or unix:///path; the "+
			"next one is used when one does not answer (BERTH_ADDR)")
	root.PersistentFlags().StringVar(&sess.ContextName, "context", "",
		"`name` of the context with the server's address and token (BERTH_CONTEXT)")
	session.RegisterCompletion(root, "context", session.CompleteContexts)
	root.PersistentFlags().StringVarP(&sess.Cluster, "cluster", "n", "",
		"`cluster` of the objects, which groups services, jobs, crons and secrets like a namespace (BERTH_CLUSTER)")
	root.PersistentFlags().BoolVarP(&sess.AllClusters, "all-clusters", "A", false,
		"list the objects of all clusters, and find a name in any of them")
	sess.CompleteFlags(root, map[string]string{"cluster": wording.KindCluster})
	root.PersistentFlags().StringVar(&sess.TokenFile, "token-file", "",
		"file with the token that is sent to the server (BERTH_TOKEN, BERTH_TOKEN_FILE)")
	root.PersistentFlags().StringVar(&sess.CAFile, "ca-file", "",
		"file with the certificate of the servers' certificate authority (BERTH_CA_FILE)")
	root.PersistentFlags().StringVar(&sess.CAHash, "ca-hash", "",
		"`SHA-256` in hex of the servers' certificate authority, instead of --ca-file (BERTH_CA_HASH)")
	root.PersistentFlags().StringVarP(&sess.Format, "output", "o", "table",
		"output `format`: table, wide, json, yaml, name (lists only), custom-columns=TITLE:.path,…, "+
			"jsonpath=PATH (RFC 9535) or go-template=TEMPLATE")
	root.PersistentFlags().BoolVar(&sess.NoHeaders, "no-headers", false, "print tables without their titles")
	session.RegisterCompletion(root, "output",
		cobra.FixedCompletions([]string{
			"table", "wide", "json", "yaml", "name", "custom-columns=", "jsonpath=", "go-template=",
		}, cobra.ShellCompDirectiveNoFileComp))
	session.RegisterCompletion(root, "addr", cobra.NoFileCompletions)
	session.RegisterCompletion(root, "ca-hash", cobra.NoFileCompletions)
}

// Run runs one command line and returns the exit code.
func Run(ctx context.Context, sess *session.Session, args []string) int {
	defer sess.Close()
	root := newRootCommand(sess)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	return sess.ExitCode(ctx, session.CommandError(cmd, err))
}

// checkTopics makes the commands of cobra, help and completion, refuse unknown arguments like all others.
func checkTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Run = nil
			cmd.RunE = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					if found == nil {
						found = root
					}
					return session.RunGroup(found, rest)
				}
				found.InitDefaultHelpFlag()
				return found.Help()
			}
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, session.RunGroup
			for _, shell := range cmd.Commands() {
				shell.Args = session.Arguments(0, 0, "")
			}
		}
	}
}

package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// app is what the commands share: the streams, the environment and the global flags.
type app struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	env            func(string) string
	now            func() time.Time

	addrs                     []string
	tokenFile, caFile, caHash string
	output                    string
	shape                     shape // what the output's own text makes of values, or nil
}

func newApp(stdin io.Reader, stdout, stderr io.Writer) *app {
	return &app{stdin: stdin, stdout: stdout, stderr: stderr, env: os.Getenv, now: time.Now}
}

// tell prints a message for people.
func (a *app) tell(format string, args ...any) {
	fmt.Fprintf(a.stderr, format+"\n", args...)
}

// say prints a line of data.
func (a *app) say(format string, args ...any) {
	fmt.Fprintf(a.stdout, format+"\n", args...)
}

const rootLong = `Berth runs services and jobs as containers on machines.

  berth dev                    start a whole Berth on this machine
  berth run web.yaml           run what a manifest says, and wait until it is well
  berth status                 see how everything is, trouble first
  berth explain web            hear why it is so

The server is found by --addr, BERTH_ADDR, the socket berth/api.sock in
XDG_RUNTIME_DIR, the file berth/addr in the configuration folder (berth dev
writes it), /run/berth/api.sock, and at last http://127.0.0.1:7373. Several addresses, with commas between,
stand for each other. Over http and https the token is that of --token-file, BERTH_TOKEN,
BERTH_TOKEN_FILE or, on this machine, the file berth/token in the configuration folder.
Over https the servers' authority is named by --ca-file or --ca-hash.

Exit codes: 0 done; 1 the answer is no (run: not healthy or failed, rollout status: failed or
rolled back, plan: something to change, validate: a fault, wait: it did not come); 2 it could not be done (wrong arguments, no server, refused);
130 interrupted. 'berth exec' exits as its command does, with 125 if it could not run it; 'berth attach' as the container does.`

// newRootCommand builds the whole tree of commands.
func (a *app) newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:           "berth",
		Short:         "Run services and jobs on machines",
		Long:          rootLong,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE:          a.group,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFlags(cmd); err != nil {
				return err
			}
			return a.checkOutput(cmd)
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if args := cmd.Flags().Args(); cmd == root && len(args) > 0 { // the command is wrong before the flag is
			return a.group(cmd, args)
		}
		if slices.Contains([]string{"run", "plan", "validate"}, cmd.Name()) &&
			strings.HasSuffix(err.Error(), "'f' in -f") {
			return &usageError{cmd.CommandPath(), "give the file without -f: " + cmd.CommandPath() + " FILE"}
		}
		return &usageError{cmd.CommandPath(), wrongFlag(cmd, err)}
	})
	root.PersistentFlags().StringSliceVar(&a.addrs, "addr", nil,
		"address of a server, https://host:port, http://host:port or unix:///path; several stand for each "+
			"other (BERTH_ADDR)")
	root.PersistentFlags().StringVar(&a.tokenFile, "token-file", "",
		"file with the token that is sent to the server (BERTH_TOKEN, BERTH_TOKEN_FILE)")
	root.PersistentFlags().StringVar(&a.caFile, "ca-file", "",
		"file with the certificate of the servers' authority (BERTH_CA_FILE)")
	root.PersistentFlags().StringVar(&a.caHash, "ca-hash", "",
		"SHA-256 of that certificate, in hex, instead of the file (BERTH_CA_HASH)")
	root.PersistentFlags().StringVarP(&a.output, "output", "o", "table",
		"how to print: table, wide, json, yaml, jsonpath=PATH (RFC 9535) or go-template=TEMPLATE")
	mustComplete(root, "output",
		cobra.FixedCompletions([]string{"table", "wide", "json", "yaml", "jsonpath=", "go-template="},
			cobra.ShellCompDirectiveNoFileComp))
	mustComplete(root, "addr", cobra.NoFileCompletions)
	mustComplete(root, "ca-hash", cobra.NoFileCompletions)

	root.AddGroup(&cobra.Group{ID: "run", Title: "Run:"}, &cobra.Group{ID: "look", Title: "Look:"},
		&cobra.Group{ID: "change", Title: "Change:"}, &cobra.Group{ID: "serve", Title: "Serve:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("run", a.newRunCommand(), a.newPlanCommand(), a.newSimulateCommand(), a.newValidateCommand(),
		a.newWaitCommand())
	add("look", a.newStatusCommand(), a.newPsCommand(), a.newExplainCommand(), a.newLogsCommand(), a.newEventsCommand(),
		a.newInspectCommand(), a.newDiffCommand(), a.newTopCommand(), a.newNodeCommand())
	add("change", a.newScaleCommand(), a.newStopCommand(), a.newStartCommand(), a.newRestartCommand(),
		a.newRolloutCommand(), a.newPromoteCommand(), a.newRebalanceCommand(), a.newReservationCommand(),
		a.newSecretCommand(), a.newCronCommand(), a.newDefinitionCommand(), a.newDeleteCommand(),
		a.newExecCommand(),
		a.newCheckCommand(), a.newAttachCommand(), a.newPortForwardCommand(), a.newCopyCommand(), a.newImageCommand(),
		a.newVolumeCommand())
	add("serve", newDevCommand(), a.newServerCommand(), a.newAgentCommand(), a.newTokenCommand(),
		a.newOperatorCommand())
	root.AddCommand(a.newVersionCommand(), a.newManCommand(), newReferenceCommand())
	addExamples(root, commandExamples())
	a.topics(root)
	return root
}

// group is the action of commands that only hold others.
func (a *app) group(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	return &usageError{
		cmd.CommandPath(),
		fmt.Sprintf("unknown command %q", cmd.CommandPath()+" "+args[0]) + subcommand(cmd, args[0]),
	}
}

// slips counts the slips of the keyboard between two words: a letter too many, too few, wrong, or two that changed
// places (the optimal string alignment distance).
func slips(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		for j := range rows[i] {
			if i == 0 || j == 0 {
				rows[i][j] = i + j
				continue
			}
			wrong := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				wrong++
			}
			rows[i][j] = min(wrong, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}

// mustComplete registers the completion of a flag, which exists.
func mustComplete(cmd *cobra.Command, flag string, complete cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, complete); err != nil {
		panic(err)
	}
}

// arguments demands a number of arguments, most < 0 meaning any, and tells what they are.
func arguments(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < least && what != "":
			return &usageError{cmd.CommandPath(), fmt.Sprintf("%s needs %s", cmd.CommandPath(), what)}
		case most == 0 && len(args) > 0:
			return &usageError{
				cmd.CommandPath(),
				fmt.Sprintf("%s takes no arguments, found %q", cmd.CommandPath(), args[0]) + subcommand(cmd, args[0]),
			}
		case most >= 0 && len(args) > most:
			return &usageError{
				cmd.CommandPath(),
				fmt.Sprintf("%s takes %s, found also %q", cmd.CommandPath(), what, args[most]),
			}
		}
		return nil
	}
}

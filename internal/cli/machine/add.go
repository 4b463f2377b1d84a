package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/fetch"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/ssh"
)

// maxMachines is the maximum number of machines of one command.
const maxMachines = 1000

// addCommand is `berth node add`.
type addCommand struct {
	remote
	profile      string
	domain, pool string
	servers      []string
	passive      string
	file         string
	machines     []machineAddress
}

// machineAddress is one argument.
type machineAddress struct {
	name   string
	target ssh.Target
}

// NewNodeAddCommand returns `berth node add`.
func NewNodeAddCommand(sess *session.Session) *cobra.Command {
	a := &addCommand{remote: remote{Session: sess}}
	cmd := &cobra.Command{
		Use: "add [NAME=][USER@]ADDRESS[:PORT]...", Short: "Make nodes of machines, over SSH",
		Long: "Makes nodes of machines with an SSH server. For each machine the command learns the hardware and the\n" +
			"network, compares it with a profile, applies the profile, installs this program, starts the agent\n" +
			"with a join token of its own, and waits until the node is ready.\n\n" +
			"A failure does not stop the other machines. The same command continues where it failed, and changes\n" +
			"nothing on machines that are as they should be. --dry-run shows what would change.",
		Args: session.Arguments(0, maxMachines, "the addresses of machines"),
		RunE: a.run,
	}
	f := cmd.Flags()
	a.addFlags(f)
	a.addParallelFlag(f)
	a.addTimeoutFlag(f, 2*time.Minute)
	f.StringVar(&a.profile, "profile", "", "profile of the machines: NAME, NAME@VERSION or a `FILE`; default none")
	f.StringVar(&a.domain, "domain", "", "domain of the nodes; default the one named default")
	f.StringVar(&a.pool, "pool", "", "pool of the nodes")
	f.StringSliceVar(&a.servers, "server", nil, "https address of a server as the machines reach it; may be given "+
		"several times; default those of all servers")
	f.StringVar(&a.passive, "passive", "", "make passive nodes, whose agents open no connection: the servers dial "+
		"them. `HOW` is tcp, to port "+strconv.Itoa(cluster.PassivePort)+" of the address, or ssh, through the "+
		"machine's SSH server with a key of the servers (their flag --ssh-identity)")
	f.BoolVar(&a.standalone, "standalone", false, "make nodes that drive themselves, without servers: see 'berth "+
		"standalone'")
	f.BoolVar(&a.dryRun, "dry-run", false, "show what would change, and change nothing")
	f.StringVarP(&a.file, "file", "f", "", "`FILE` with addresses, one a line; - for standard input")
	return cmd
}

// check parses the arguments and flags. The error lists all faults.
func (a *addCommand) check(cmd *cobra.Command, args []string) error {
	var list session.Faults
	if a.file != "" {
		more, err := a.readAddresses()
		list.AddError("--file", err)
		args = slices.Concat(args, more)
	}
	seen := map[string]bool{}
	for _, text := range args {
		m, err := a.access.parse(text)
		switch key := cmp.Or(m.name, m.target.String()); {
		case err != nil:
			list.Add("%v", err)
		case seen[key] || seen[m.target.String()]:
			list.Add("%s is given twice", text)
		default:
			seen[key], seen[m.target.String()] = true, true
			a.machines = append(a.machines, m)
		}
	}
	if len(args) == 0 {
		list.Add("no machine is given: want the addresses of machines, or --file")
	}
	for _, s := range a.servers {
		host, ok := strings.CutPrefix(s, "https://")
		if !ok {
			list.Add("--server %q: want https://host:port", s)
			continue
		}
		_, err := session.ParseHostPort(strings.TrimSuffix(host, "/"), datadir.PortAPI)
		list.AddError("--server", err)
	}
	if a.passive != "" && a.passive != passiveTCP && a.passive != passiveSSH {
		list.Add("--passive %q: want tcp or ssh", a.passive)
	}
	if a.passive != "" && (a.standalone || len(a.servers) > 0) {
		list.Add("--passive excludes --server and --standalone: the servers dial a passive node")
	}
	if a.standalone && (a.domain != "" || a.pool != "" || len(a.servers) > 0) {
		list.Add("--standalone excludes --server, --domain and --pool: a standalone node has no servers but its own")
	}
	a.checkFlags(&list)
	return list.Err(cmd)
}

// readAddresses returns the lines of the file, without comments.
func (a *addCommand) readAddresses() (all []string, err error) {
	b, err := readFileOrInput(a.Session, a.file)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		all = append(all, strings.Fields(line)...)
	}
	return all, nil
}

func (a *addCommand) run(cmd *cobra.Command, args []string) error {
	if err := a.check(cmd, args); err != nil {
		return err
	}
	ctx := cmd.Context()
	var err error
	if !a.standalone || a.profileIsStored() {
		if a.client, err = a.Connect(); err != nil {
			return err
		}
	}
	profile, err := a.findProfile(ctx)
	if err != nil {
		return err
	}
	if err := a.findServers(ctx); err != nil {
		return err
	}
	all := make([]setupTask, len(a.machines))
	for i, m := range a.machines {
		all[i] = setupTask{machineAddress: m, jump: a.access.jumps, profile: profile, servers: a.servers}
		all[i].dial, all[i].listen = a.dialAddress(m.target)
	}
	results, err := a.runAll(ctx, all, &control{client: a.client, domain: a.domain, pool: a.pool})
	if err != nil {
		return err
	}
	return a.finish(results)
}

// The values of --passive.
const (
	passiveTCP = "tcp"
	passiveSSH = "ssh"
)

// dialAddress returns where servers dial the agent of a machine, and where it listens; "" unless it is a passive node.
func (a *addCommand) dialAddress(t ssh.Target) (dial, listen string) {
	port := strconv.Itoa(cluster.PassivePort)
	switch a.passive {
	case passiveTCP:
		return net.JoinHostPort(t.Host, port), net.JoinHostPort("0.0.0.0", port)
	case passiveSSH:
		return "ssh://" + t.String(), net.JoinHostPort("127.0.0.1", port)
	}
	return "", ""
}

// profileIsStored reports whether the flag names a profile of the store.
func (a *addCommand) profileIsStored() bool {
	return a.profile != "" && a.profile != "-" && !strings.ContainsAny(a.profile, "/.")
}

// findProfile returns the profile of the flag: that of a file, or one in the store.
func (a *addCommand) findProfile(ctx context.Context) (*cluster.Profile, error) {
	switch {
	case a.profile == "":
		return nil, nil //nolint:nilnil // a machine needs no profile
	case a.profileIsStored():
		return fetchProfile(ctx, a.client, a.profile)
	}
	return readProfile(a.Session, a.profile)
}

// findServers makes the servers' own addresses those that the machines use, unless flags name others.
func (a *addCommand) findServers(ctx context.Context) error {
	if len(a.servers) > 0 || a.standalone || a.passive != "" {
		return nil
	}
	all, err := fetch.ListServers(ctx, a.client)
	if err != nil {
		return err
	}
	for _, s := range all {
		if s.API != "" {
			a.servers = append(a.servers, s.API)
		}
	}
	if len(a.servers) == 0 {
		return errors.New("no server has an https address: machines join servers that were made with 'berth server " +
			"init'; 'berth dev' serves its own machine only")
	}
	return nil
}

// control is the control plane of the session.
type control struct {
	client       *client.Client
	domain, pool string
}

// JoinToken is part of bootstrap.Control.
func (c *control) JoinToken(ctx context.Context, node string) (string, error) {
	made, err := c.client.CreateToken(ctx, api.TokenRequest{
		Name: "berth node add " + node, Purpose: cluster.TokenJoin, Role: cluster.RoleNode, Uses: 1,
		Life: cluster.Duration(15 * time.Minute), For: node,
	})
	return made.Token, err
}

// Session is part of bootstrap.Control.
func (c *control) Session(ctx context.Context, node string) (uint64, error) {
	is, err := c.client.Node(ctx, node)
	return is.Session, err
}

// Record is part of bootstrap.Control.
func (c *control) Record(ctx context.Context, node string, s cluster.HostSetup, dial string) (session uint64,
	err error,
) {
	is, err := writeSetup(ctx, c.client, node, func(is *api.NodeView) *api.NodeSetupRequest {
		if is.Setup != nil && (c.pool == "" || c.pool == is.Pool) && (c.domain == "" || c.domain == is.Domain) &&
			(dial == "" || dial == is.Dial) && sameSetup(*is.Setup, s) {
			return nil
		}
		return &api.NodeSetupRequest{Domain: c.domain, Pool: c.pool, Setup: s, Dial: dial}
	})
	return is.Session, err
}

// sameSetup compares what an addition decides, not what it measures.
func sameSetup(a, b cluster.HostSetup) bool {
	profile := func(s cluster.HostSetup) cluster.Ref {
		if s.Profile == nil {
			return cluster.Ref{}
		}
		return *s.Profile
	}
	return a.Address == b.Address && slices.Equal(a.Jump, b.Jump) && slices.Equal(a.Drift, b.Drift) &&
		a.Binary == b.Binary && profile(a) == profile(b)
}

// WaitReady is part of bootstrap.Control.
func (c *control) WaitReady(ctx context.Context, node string, after uint64) error {
	state := "no agent has registered"
	for _, err := range c.client.NodeChanges(ctx, node) {
		if ctx.Err() != nil {
			break // the end of the time says what the node is
		}
		if err != nil {
			return err
		}
		v, err := c.client.Node(ctx, node)
		if err != nil {
			if client.StatusOf(err) == http.StatusNotFound || ctx.Err() != nil {
				continue
			}
			return err
		}
		if v.State == cluster.NodeReady && v.Session > after {
			return nil
		}
		state = strings.TrimSuffix(fmt.Sprintf("it is %s: %s", v.State, v.Reason), ": ")
		if v.Session <= after {
			state = "its new agent has not registered"
		}
	}
	return fmt.Errorf("%w: %s", context.Cause(ctx), state)
}

// homeFolder returns the home folder of this user.
func homeFolder() string {
	if home, err := os.UserHomeDir(); err == nil {
		return home
	}
	return "/"
}

// ownUser returns the name of this user.
func ownUser() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return "root"
}

// expandHome replaces "~/" at the start of a path.
func expandHome(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		return filepath.Join(homeFolder(), rest)
	}
	return path
}

// Package machine implements the commands that set up machines: `berth machine` on the machine itself, and `berth node
// add` over SSH.
package machine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/bootstrap"
	"github.com/berthd/berth/internal/cli/apply"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/setup"
	"github.com/berthd/berth/internal/wording"
)

// maxRequest is the size of a request on standard input, in bytes.
const maxRequest = 4 << 20

// NewMachineCommand returns `berth machine`.
func NewMachineCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "machine", Short: "Show and set up this machine", Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newDescribeCommand(sess), newApplyCommand(sess), newSuperviseCommand())
	cmd.AddCommand(newUpgradeCommands(sess)...)
	return cmd
}

// describeCommand is `berth machine describe`.
type describeCommand struct {
	*session.Session
	profile, request string
}

func newDescribeCommand(sess *session.Session) *cobra.Command {
	d := &describeCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "describe", Short: "Show the hardware of this machine, and what differs from a profile",
		Long: "Shows the hardware, the network and the system of this machine. With --profile it also lists what\n" +
			"differs from the profile, and ends with 1 if something does.",
		Args: session.Arguments(0, 0, ""), RunE: d.run,
	}
	cmd.Flags().StringVar(&d.profile, "profile", "", "`FILE` with a profile")
	cmd.Flags().StringVar(&d.request, "request", "", "- for a request on standard input")
	_ = cmd.Flags().MarkHidden("request") // for berth node add; the flag exists
	return cmd
}

func (d *describeCommand) run(cmd *cobra.Command, _ []string) error {
	var request bootstrap.DescribeRequest
	if d.request != "" {
		if err := readRequest(d.Session, &request); err != nil {
			return err
		}
		report, err := setup.New().Describe(cmd.Context(), request.Servers, request.Request)
		if err != nil {
			return err
		}
		return json.NewEncoder(d.Stdout).Encode(report)
	}
	if d.profile != "" {
		p, err := readProfile(d.Session, d.profile)
		if err != nil {
			return err
		}
		request.Request = &setup.Request{Profile: p}
	}
	report, err := setup.New().Describe(cmd.Context(), nil, request.Request)
	if err != nil {
		return err
	}
	if d.WantsData() {
		return d.PrintData(report)
	}
	facts := output.Table{Titles: []string{"", ""}}
	facts.Add("machine", report.Facts.Hostname)
	facts.Add("system", fmt.Sprintf("%s/%s, kernel %s", report.Facts.OS, report.Facts.Arch, report.Facts.Kernel))
	facts.Add("memory", report.Facts.Memory.String())
	AddHardware(&facts, report.Facts.Hardware)
	if err := d.PrintTable(facts); err != nil || request.Request == nil {
		return err
	}
	unmet := setup.Unmet(&request.Request.Profile.Requires, &report.Facts, 0, 0)
	for _, u := range unmet {
		d.Printf("unfit: %s", u)
	}
	if err := printDifferences(d.Session, report.Differences); err != nil {
		return err
	}
	if len(unmet)+len(report.Differences) > 0 {
		return &session.ExitError{Code: session.ExitNo}
	}
	d.Printf("The machine is as the profile %s says.", request.Request.Profile.Ref())
	return nil
}

// printDifferences prints what differs from a profile.
func printDifferences(sess *session.Session, all []setup.Difference) error {
	if len(all) == 0 {
		return nil
	}
	t := output.Table{StateColumn: -1, Titles: []string{"ITEM", "IS", "WANT"}}
	for _, d := range all {
		t.Add(d.Item, d.Is, d.Want)
	}
	return sess.PrintTable(t)
}

// AddHardware adds rows about the parts of a machine to a table of facts.
func AddHardware(t *output.Table, h *cluster.Hardware) {
	if h == nil {
		return
	}
	if h.Distribution != "" {
		t.Add("distribution", h.Distribution)
	}
	if h.CPUModel != "" {
		t.Add("processor", h.CPUModel)
	}
	if h.Cores > 0 {
		t.Add("topology", strings.Join([]string{
			wording.Count(h.Sockets, "socket"), wording.Count(h.Cores, "core"), wording.Count(h.Threads, "thread"),
			wording.Count(h.NUMANodes, "NUMA node"),
		}, ", "))
	}
	if h.Virtualization != "" {
		t.Add("virtualization", h.Virtualization)
	}
	if h.Cgroups > 0 {
		t.Add("control groups", fmt.Sprintf("version %d", h.Cgroups))
	}
	for _, i := range h.Interfaces {
		t.Add("interface", interfaceText(i))
	}
	for _, d := range h.Drives {
		kind := "solid state"
		if d.Rotational {
			kind = "rotating"
		}
		text := fmt.Sprintf("%s: %s, %s", d.Name, d.Size, kind)
		if d.Model != "" {
			text += ", " + d.Model
		}
		t.Add("drive", text)
	}
	for _, g := range h.GPUs {
		text := fmt.Sprintf("%s: %s:%s", g.Address, g.Vendor, g.Device)
		if g.Driver == "" {
			text += ", without a driver"
		} else {
			text += ", driver " + g.Driver
		}
		t.Add("gpu", text)
	}
}

func interfaceText(i cluster.NetworkInterface) string {
	text := i.Name + ": " + cmp.Or(strings.Join(i.Addresses, ", "), "no address")
	if i.Speed > 0 {
		text += fmt.Sprintf(", %d Mbit/s", i.Speed)
	}
	return text
}

// applyCommand is `berth machine apply`.
type applyCommand struct {
	*session.Session
	profile, request string
}

func newApplyCommand(sess *session.Session) *cobra.Command {
	a := &applyCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "apply --profile FILE", Short: "Make this machine what a profile says",
		Long: "Installs the packages of a profile on this machine, loads its modules, sets its settings of the\n" +
			"kernel, makes its users and writes its files. What is as it should be stays. The command is for\n" +
			"root, and may be repeated at any time. To make a node of the machine, use 'berth node add'.",
		Args: session.Arguments(0, 0, ""), RunE: a.run,
	}
	cmd.Flags().StringVar(&a.profile, "profile", "", "`FILE` with a profile")
	cmd.Flags().StringVar(&a.request, "request", "", "- for a request on standard input")
	_ = cmd.Flags().MarkHidden("request") // for berth node add; the flag exists
	return cmd
}

func (a *applyCommand) run(cmd *cobra.Command, _ []string) error {
	if a.request != "" {
		return a.runRequest(cmd.Context())
	}
	if a.profile == "" {
		var list session.Faults
		list.Add("--profile is missing: want a file with a profile")
		return list.Err(cmd)
	}
	p, err := readProfile(a.Session, a.profile)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("only root can set up the machine: use sudo")
	}
	m, request := setup.New(), &setup.Request{Profile: p}
	report, err := m.Describe(cmd.Context(), nil, request)
	if err != nil {
		return err
	}
	if unmet := setup.Unmet(&p.Requires, &report.Facts, 0, 0); len(unmet) > 0 {
		return &session.ExitError{Code: session.ExitNo, Err: &bootstrap.UnfitError{Faults: unmet}}
	}
	changes := 0
	err = m.Apply(cmd.Context(), request, func(s setup.Step) {
		if s.Problem == "" {
			changes++
			a.Printf("%s: %s -> %s", s.Item, s.Is, s.Want)
		}
	})
	if err != nil {
		return err
	}
	if changes == 0 {
		a.Printf("The machine is as the profile %s says.", p.Ref())
	}
	return nil
}

// runRequest applies a request of `berth node add`.
func (a *applyCommand) runRequest(ctx context.Context) error {
	var request setup.Request
	if err := readRequest(a.Session, &request); err != nil {
		return err
	}
	return writeChanges(a.Session, func(report func(setup.Step)) error {
		return setup.New().Apply(ctx, &request, report)
	})
}

func readRequest(sess *session.Session, into any) error {
	if err := json.NewDecoder(io.LimitReader(sess.Stdin, maxRequest)).Decode(into); err != nil {
		return fmt.Errorf("read the request on standard input: %w", err)
	}
	return nil
}

// readProfile reads the only profile of a manifest.
func readProfile(sess *session.Session, file string) (*cluster.Profile, error) {
	objects, err := apply.ReadManifests(sess, []string{file})
	if err != nil {
		return nil, err
	}
	var found *cluster.Profile
	for _, o := range objects {
		if p, ok := o.Value.(*cluster.Profile); ok {
			if found != nil {
				return nil, fmt.Errorf("%s has two profiles, %s and %s: want one", file, found.Ref(), p.Ref())
			}
			found = p
		}
	}
	if found == nil {
		return nil, fmt.Errorf("%s has no profile: want kind: Profile", file)
	}
	return found, nil
}

// newSuperviseCommand returns `berth machine supervise`.
func newSuperviseCommand() *cobra.Command {
	return &cobra.Command{
		Use: "supervise", Short: "Run the agent of this machine without systemd, and restart it when it ends",
		Long: "Runs the agent that 'berth node add' set up on a machine without systemd, and starts it again\n" +
			"whenever it ends. 'berth node add' starts this command; the machine's own init should start it at\n" +
			"boot. SIGHUP replaces it and the agent by those of the installed binary. Tasks continue when it ends.",
		Args: session.Arguments(0, 0, ""),
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := datadir.NewLogger(cmd.ErrOrStderr(), "info")
			if err != nil {
				return err
			}
			return setup.Supervise(setup.New(), log)
		},
	}
}

// AddSetup adds rows about how a machine was added to a table of facts.
func AddSetup(t *output.Table, s *cluster.HostSetup) {
	if s == nil {
		return
	}
	t.Add("added", s.Address+" at "+output.FormatMinute(s.At))
	if len(s.Jump) > 0 {
		t.Add("jump", strings.Join(s.Jump, ", "))
	}
	if s.Profile != nil {
		t.Add("profile", s.Profile.String())
	}
	if f := s.FailedUpgrade; f != nil {
		t.Add("failed upgrade", fmt.Sprintf("to %s at %s: %s", f.Binary, output.FormatMinute(f.At), f.Problem))
	}
	if len(s.Drift) > 0 {
		t.Add("drift", strings.Join(s.Drift, ", "))
	}
	if s.ClockSkew != 0 {
		t.Add("clock", s.ClockSkew.String()+" ahead when it was added")
	}
	for _, r := range s.Routes {
		text := r.Server + " from " + r.Address + " in " + r.Took.String()
		if r.Problem != "" {
			text = r.Server + ": " + r.Problem
		}
		t.Add("route", text)
	}
}

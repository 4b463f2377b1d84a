package machine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
)

// NewProfileCommand returns `berth profile`.
func NewProfileCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "profile", Aliases: []string{"profiles"}, Short: "List the profiles of machines",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newProfileListCommand(sess))
	return cmd
}

// profileListCommand is `berth profile ls`.
type profileListCommand struct{ *session.Session }

func newProfileListCommand(sess *session.Session) *cobra.Command {
	p := &profileListCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List the profiles of machines and their versions",
		Long: "List the profiles of machines. A manifest of the kind Profile says what a machine needs before it is\n" +
			"a node; 'berth run' applies it, and 'berth node add --profile' uses it. A version never changes.",
		Args: session.Arguments(0, 0, ""), RunE: sess.WithClient(p.run),
	}
}

func (p *profileListCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	all, _, err := client.All(ctx, client.ListOptions{}, c.Profiles)
	if err != nil {
		return err
	}
	return session.PrintList(p.Session, all, "No profiles. Apply a manifest of the kind Profile with 'berth run'.",
		profileTable)
}

func profileTable(all []api.ProfileView) output.Table {
	t := output.Table{
		StateColumn: -1,
		Titles:      []string{"PROFILE", "VERSION>", "NODES>", "PACKAGES>", "FILES>", "EXECUTOR"},
	}
	for _, v := range all {
		packages := 0
		for _, list := range v.Packages { // order-free: a sum
			packages += len(list)
		}
		t.Add(v.Name, strconv.Itoa(v.Version), strconv.Itoa(len(v.Nodes)), strconv.Itoa(packages),
			strconv.Itoa(len(v.Files)), string(v.Agent.Executor))
	}
	return t
}

// PrintProfile prints one version of a profile.
func PrintProfile(ctx context.Context, sess *session.Session, c *client.Client, name string) error {
	v, err := session.FindProfile(ctx, c, name)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(v)
	}
	if err := sess.PrintTable(profileTable([]api.ProfileView{v})); err != nil {
		return err
	}
	facts := output.Table{Titles: []string{"", ""}, Indent: "  "}
	for _, d := range slices.Sorted(maps.Keys(v.Packages)) {
		facts.Add("packages", d+": "+strings.Join(v.Packages[d], ", "))
	}
	if len(v.Modules) > 0 {
		facts.Add("modules", strings.Join(v.Modules, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(v.Sysctls)) {
		facts.Add("sysctl", name+" = "+v.Sysctls[name])
	}
	for _, u := range v.Users {
		facts.Add("user", u.Name)
	}
	for _, f := range v.Files {
		facts.Add("file", fmt.Sprintf("%s, %d bytes", f.Path, len(f.Content)))
	}
	for _, f := range v.Agent.Flags {
		facts.Add("agent", f)
	}
	if len(v.Nodes) > 0 {
		facts.Add("nodes", strings.Join(v.Nodes, ", "))
	}
	return sess.PrintTable(facts)
}

// fetchProfile returns a profile of the store.
func fetchProfile(ctx context.Context, c *client.Client, text string) (*cluster.Profile, error) {
	if _, err := cluster.ParseRef(text); err != nil {
		return nil, fmt.Errorf("--profile %q: want NAME, NAME@VERSION or the path of a file", text)
	}
	v, err := session.FindProfile(ctx, c, text)
	if err != nil {
		return nil, err
	}
	return &v.Profile, nil
}

package resource

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewReservationCommand returns the command `berth reservation`.
func NewReservationCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use: "reservation", Aliases: []string{"reservations"}, Short: "Reserve nodes for some owners during a " +
			"span of time",
		Args: cobra.ArbitraryArgs, RunE: session.RunGroup,
	}
	cmd.AddCommand(newReservationCreateCommand(sess), newReservationLsCommand(sess), newReservationShowCommand(sess),
		newReservationRmCommand(sess))
	return cmd
}

// reservationCreateCommand is `berth reservation create`.
type reservationCreateCommand struct {
	*session.Session
	api.Reservation
	constraints, labels []string
	from, until         string
	duration, lead      time.Duration
}

func newReservationCreateCommand(sess *session.Session) *cobra.Command {
	o := &reservationCreateCommand{Session: sess}
	cmd := &cobra.Command{
		Use: "create NAME", Short: "Create or replace a reservation",
		Long: "Reserves nodes for a span of time. --node names the nodes, or --count lets Berth choose them. The\n" +
			"span begins at --from, by default now, and ends at --until or after --for.\n\n" +
			"During the span, only tasks of the holders are placed on these nodes. The holders are the services\n" +
			"and jobs of --cluster and with --label, or else those that name the reservation\n" +
			"(placement.reservation). Running tasks of others stay, or move away with --evict. In the lead before\n" +
			"the span (--lead), the nodes accept only tasks with a time limit that ends before the span begins.\n\n" +
			"If the reservation exists, the command replaces it.",
		Args: session.Arguments(1, 1, "a name for the reservation"),
		RunE: o.run,
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.Nodes, "node", nil, "a `node` to reserve; may be given more than once")
	f.IntVar(&o.Count, "count", 0, "number of nodes that Berth chooses and reserves")
	f.StringVar(&o.Pool, "pool", "", "choose among the nodes of this `pool`")
	f.StringArrayVar(&o.constraints, "constraint", nil,
		"choose among nodes that meet it, such as label.gpu=a100; may be given more than once")
	f.StringVar(&o.from, "from", "", "begin, such as 2026-12-01T08:00:00Z; default now")
	f.StringVar(&o.until, "until", "", "end, such as 2026-12-01T16:00:00Z")
	f.DurationVar(&o.duration, "for", 0, "duration, instead of --until")
	f.DurationVar(&o.lead, "lead", 0, "how long before the begin the nodes refuse tasks that would not end in "+
		"time (default 1h)")
	f.StringSliceVarP(&o.Clusters, "cluster", "n", nil, "for tasks of this `cluster`; may be given more than once")
	sess.CompleteFlags(cmd, map[string]string{"cluster": wording.KindCluster})
	f.StringArrayVar(&o.labels, "label", nil,
		"for services and jobs with this label, as `key=value`; may be given more than once")
	f.BoolVar(&o.Evict, "evict", false, "move tasks of others away when the reservation begins")
	session.RegisterCompletion(cmd, "node", sess.CompleteNames(wording.KindNode))
	return cmd
}

func (o *reservationCreateCommand) run(cmd *cobra.Command, args []string) error {
	o.Name = args[0]
	r, err := o.reservation(cmd)
	if err != nil {
		return err
	}
	c, err := o.Connect()
	if err != nil {
		return err
	}
	v, err := c.PutReservation(cmd.Context(), r, client.Condition{})
	if err != nil {
		return err
	}
	if o.WantsData() {
		return o.PrintData(v)
	}
	o.Printf("reservation %s keeps %s from %s until %s: %s", v.Name, wording.Count(len(v.Nodes), "node"),
		output.FormatMinute(v.From),
		output.FormatMinute(v.Until), strings.Join(v.Nodes, ", "))
	return nil
}

// reservation returns the reservation that the flags describe. An error lists all faults.
func (o *reservationCreateCommand) reservation(cmd *cobra.Command) (api.Reservation, error) {
	var list session.Faults
	r := o.Reservation
	moment := func(flag, text string) time.Time {
		if text == "" {
			return time.Time{}
		}
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			list.Add("--%s %q is not a time: want one such as 2026-12-01T08:00:00Z", flag, text)
		}
		return at
	}
	r.From, r.Until, r.Lead = moment("from", o.from), moment("until", o.until), cluster.Duration(o.lead)
	if (o.duration != 0) == (o.until != "") {
		list.Add("the end is missing: want --until or --for")
	}
	if o.duration < 0 {
		list.Add("--for is %s: want a positive duration", o.duration)
	}
	if o.duration > 0 {
		if r.From.IsZero() {
			r.From = o.Now().UTC().Truncate(time.Second)
		}
		r.Until = r.From.Add(o.duration)
	}
	for _, text := range o.constraints {
		attribute, value, ok := strings.Cut(text, "=")
		if !ok {
			list.Add("--constraint %q: want attribute=value, such as label.zone=a", text)
		}
		r.Constraints = append(r.Constraints,
			cluster.Constraint{Attribute: attribute, Op: cluster.OpEqual, Value: value})
	}
	labels, err := session.ParseLabels(o.labels)
	list.AddError("--label", err)
	if len(labels) > 0 {
		r.Labels = labels
	}
	return r, list.Err(cmd)
}

// reservationLsCommand is `berth reservation ls`.
type reservationLsCommand struct{ *session.Session }

func newReservationLsCommand(sess *session.Session) *cobra.Command {
	r := &reservationLsCommand{sess}
	return &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "List reservations", Args: session.Arguments(0, 0, ""),
		RunE: sess.WithClient(r.run),
	}
}

func (r *reservationLsCommand) run(ctx context.Context, c *client.Client, _ []string) error {
	all, _, err := client.All(ctx, client.ListOptions{}, c.Reservations)
	if err != nil {
		return err
	}
	return session.PrintList(r.Session, all, "No reservations. Create one with 'berth reservation create'.",
		reservationTable)
}

func reservationTable(all []api.ReservationView) output.Table {
	t := output.Table{
		StateColumn: 1,
		Titles:      []string{"RESERVATION", "STATE", "NODES>", "FROM", "UNTIL", "FOR", "+BY"},
	}
	for i := range all {
		v := &all[i]
		t.Add(v.Name, string(v.State), strconv.Itoa(len(v.Nodes)), output.FormatMinute(v.From),
			output.FormatMinute(v.Until),
			audienceText(v), v.By)
	}
	return t
}

// audienceText describes which tasks may use a reservation.
func audienceText(v *api.ReservationView) string {
	var parts []string
	if len(v.Clusters) > 0 {
		parts = append(parts, strings.Join(v.Clusters, ","))
	}
	if len(v.Labels) > 0 {
		for _, key := range slices.Sorted(maps.Keys(v.Labels)) {
			parts = append(parts, key+"="+v.Labels[key])
		}
	}
	if len(parts) == 0 {
		return "owners that name it"
	}
	return strings.Join(parts, " ")
}

// reservationShowCommand is `berth reservation show`.
type reservationShowCommand struct{ *session.Session }

func newReservationShowCommand(sess *session.Session) *cobra.Command {
	r := &reservationShowCommand{sess}
	return &cobra.Command{
		Use: "show NAME", Aliases: []string{"status"}, Short: "Show a reservation",
		Args:              session.Arguments(1, 1, "the name of a reservation"),
		ValidArgsFunction: sess.CompleteNames(session.KindReservation),
		RunE:              sess.WithClient(r.run),
	}
}

func (r *reservationShowCommand) run(ctx context.Context, c *client.Client, args []string) error {
	v, err := c.Reservation(ctx, args[0])
	if err != nil {
		return explainUnknown(err, args[0])
	}
	if r.WantsData() {
		return r.PrintData(v)
	}
	r.Printf("reservation %s is %s", v.Name, v.State)
	r.Printf("  from    %s", output.FormatMinute(v.From))
	r.Printf("  until   %s", output.FormatMinute(v.Until))
	r.Printf("  lead    %s", v.Lead)
	r.Printf("  for     %s", audienceText(&v))
	r.Printf("  nodes   %s", strings.Join(v.Nodes, ", "))
	if v.Evict {
		r.Printf("  tasks of others move away when it begins")
	}
	return nil
}

// reservationRmCommand is `berth reservation rm`.
type reservationRmCommand struct{ *session.Session }

func newReservationRmCommand(sess *session.Session) *cobra.Command {
	r := &reservationRmCommand{sess}
	return &cobra.Command{
		Use: "rm NAME...", Aliases: []string{"delete"}, Short: "Remove reservations",
		Args:              session.Arguments(1, -1, "the name of a reservation"),
		ValidArgsFunction: sess.CompleteAll(session.KindReservation),
		RunE:              sess.WithClient(r.run),
	}
}

func (r *reservationRmCommand) run(ctx context.Context, c *client.Client, args []string) error {
	for _, name := range args {
		if err := c.DeleteReservation(ctx, name, client.Condition{}); err != nil {
			return explainUnknown(err, name)
		}
		if !r.WantsData() {
			r.Printf("reservation %s is removed", name)
		}
	}
	return nil
}

// explainUnknown returns the error of a request, or a plain one if the reservation does not exist.
func explainUnknown(err error, name string) error {
	if client.StatusOf(err) == http.StatusNotFound {
		return fmt.Errorf("there is no reservation %q: 'berth reservation ls' lists them", name)
	}
	return err
}

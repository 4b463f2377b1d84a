package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cli/wait"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// scaleRequest is what the command line of `berth scale` requests. An empty one shows the scaling.
type scaleRequest struct {
	api.ScaleRequest
	suspend, resume bool
}

// scaleCommand is `berth scale`.
type scaleCommand struct {
	*session.Session
	request     scaleRequest
	least, most int
	detach      bool
}

// NewScaleCommand returns the command `berth scale`.
func NewScaleCommand(sess *session.Session) *cobra.Command {
	s := &scaleCommand{Session: sess}
	cmd := &cobra.Command{
		Use:   "scale SERVICE [COUNT]",
		Short: "Set the count or the scaling bounds of a service, or show its scaling",
		Long: "Set the number of tasks of a service and wait until they are healthy, as 'berth run' does, or set\n" +
			"the bounds of its scaling. With a service alone, show the count, the targets with their last\n" +
			"measurements, and the last changes. After a change of the count, scaling continues from the new\n" +
			"count. --suspend keeps the count until --resume. An interrupt ends only the wait.",
		Args:              session.Arguments(1, 2, "a service and a count, such as web 3"),
		ValidArgsFunction: sess.CompleteNames(wording.KindService),
		RunE:              s.run,
	}
	cmd.Flags().IntVar(&s.least, "min", 0, "lower bound of the `count` for scaling")
	cmd.Flags().IntVar(&s.most, "max", 0, "upper bound of the `count` for scaling")
	cmd.Flags().BoolVar(&s.request.suspend, "suspend", false, "suspend scaling: the count stays")
	cmd.Flags().BoolVar(&s.request.resume, "resume", false, "resume scaling")
	session.AddDetachFlag(cmd, &s.detach)
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// The flag parser takes a negative count for a flag.
		if _, text, ok := strings.Cut(err.Error(), " in -"); ok && strings.Trim(text, "0123456789") == "" {
			return &session.UsageError{Command: cmd.CommandPath(), Message: countFault("-" + text)}
		}
		return &session.UsageError{Command: cmd.CommandPath(), Message: session.FlagErrorText(cmd, err)}
	})
	return cmd
}

func (s *scaleCommand) run(cmd *cobra.Command, args []string) error {
	n, err := s.ParseObject(cmd, args[0], wording.KindService)
	if err != nil {
		return err
	}
	if err := s.request.parse(cmd, args[1:], &s.least, &s.most); err != nil {
		return err
	}
	c, err := s.Connect()
	if err != nil {
		return err
	}
	v, err := n.Service(cmd.Context(), c)
	if err != nil {
		return err
	}
	if s.request == (scaleRequest{}) {
		return printScale(cmd.Context(), s.Session, c, v)
	}
	if err := applyScale(cmd.Context(), s.Session, c, v, s.request); err != nil || s.request.Count == nil || s.detach {
		return err
	}
	t := &wait.Target{Name: session.ServiceName(v), Revision: v.Revision, MinGeneration: v.Generation}
	if v.Count != *s.request.Count {
		t.Revision++ // the write of the count, at least
	}
	w := wait.Waiter{Session: s.Session, Client: c, Targets: []*wait.Target{t}}
	return w.Await(cmd.Context(), "the change continues. See 'berth status "+t.Name.String()+"'.")
}

func countFault(text string) string {
	return fmt.Sprintf("%q is not a count: want a whole number, 0 or more", text)
}

// parse reads the arguments and flags, and refuses contradictions.
func (s *scaleRequest) parse(cmd *cobra.Command, args []string, least, most *int) error {
	var list session.Faults
	if len(args) > 0 {
		to, err := strconv.Atoi(args[0])
		if err != nil || to < 0 {
			return &session.UsageError{Command: cmd.CommandPath(), Message: countFault(args[0])}
		}
		s.Count = &to
	}
	for _, bound := range []struct {
		flag  string
		value *int
		to    **int
	}{{"min", least, &s.Min}, {"max", most, &s.Max}} {
		if !cmd.Flags().Changed(bound.flag) {
			continue
		}
		if *bound.value < 0 {
			list.Add("--%s %d: want a whole number, 0 or more", bound.flag, *bound.value)
		}
		*bound.to = bound.value
	}
	if s.Min != nil && s.Max != nil && *s.Min > *s.Max {
		list.Add("--min %d is more than --max %d", *s.Min, *s.Max)
	}
	if s.suspend && s.resume {
		list.Add("--suspend and --resume exclude each other: want one of them")
	}
	return list.Err(cmd)
}

// applyScale sends the request: bounds and count in one write, then the suspension.
func applyScale(ctx context.Context, sess *session.Session, c *client.Client, v api.ServiceView, s scaleRequest) error {
	n := session.ServiceName(v)
	if s.ScaleRequest != (api.ScaleRequest{}) {
		if err := c.SetScale(ctx, n.Cluster, n.Name, s.ScaleRequest, client.Condition{}); err != nil {
			return err
		}
	}
	if s.Count != nil {
		sess.Messagef("%s: %d → %s", n, v.Count, wording.Count(*s.Count, "task"))
	}
	switch {
	case s.Min != nil && s.Max != nil:
		sess.Messagef("%s: scaling keeps it between %d and %d", n, *s.Min, *s.Max)
	case s.Min != nil:
		sess.Messagef("%s: scaling keeps it at %d or more", n, *s.Min)
	case s.Max != nil:
		sess.Messagef("%s: scaling keeps it at %d or less", n, *s.Max)
	}
	switch {
	case s.suspend:
		if err := c.SuspendScaling(ctx, n.Cluster, n.Name, client.Condition{}); err != nil {
			return err
		}
		sess.Messagef("%s: scaling is suspended, the count stays", n)
	case s.resume:
		if err := c.ResumeScaling(ctx, n.Cluster, n.Name, client.Condition{}); err != nil {
			return err
		}
		sess.Messagef("%s: scaling is resumed", n)
	}
	return nil
}

// printScale prints the count of a service and what changes it.
func printScale(ctx context.Context, sess *session.Session, c *client.Client, v api.ServiceView) error {
	s, err := c.Scale(ctx, v.Cluster, v.Name)
	if err != nil {
		return err
	}
	if sess.WantsData() {
		return sess.PrintData(s)
	}
	bounds := ""
	if s.Min != nil && s.Max != nil {
		bounds = fmt.Sprintf("%d to %d", *s.Min, *s.Max)
	}
	how := "by hand"
	switch {
	case v.Mode == cluster.ModeDaemon:
		how = "one on each node"
	case s.Suspended:
		how = "suspended"
	case s.Scaling != nil:
		how = "by scaling"
	}
	head := output.Table{Titles: []string{"SERVICE", "COUNT>", "RUNNING>", "HEALTHY>", "BOUNDS", "SCALED", "MESSAGE"}}
	head.Add(sess.Argument(v.Cluster, v.Name), strconv.Itoa(s.Count), strconv.Itoa(s.Running),
		strconv.Itoa(s.Healthy),
		bounds,
		how, wording.OneLine(s.Message))
	if err := sess.PrintTable(head); err != nil {
		return err
	}
	return errors.Join(printTargets(sess, s), printSchedules(sess, s), printChanges(sess, s), printUses(sess, s))
}

func printTargets(sess *session.Session, s api.ScaleView) error {
	if len(s.Targets) == 0 {
		return nil
	}
	sess.Printf("")
	t := output.Table{Titles: []string{"TARGET", "WANT>", "NOW>", "NEEDS>", "AGE>", "MESSAGE"}}
	for _, v := range s.Targets {
		now, wish := "?", ""
		if v.Value != nil {
			now = metricText(v.Metric, *v.Value)
			wish = strconv.Itoa(v.Wish)
		}
		t.Add(string(v.Metric), metricText(v.Metric, v.Target), now, wish, sess.Age(v.At), wording.OneLine(v.Message))
	}
	return sess.PrintTable(t)
}

// metricText formats the value of a metric. Shares of the reserved amount are in percent.
func metricText(m cluster.ScaleMetric, value float64) string {
	text := strconv.FormatFloat(value, 'g', 4, 64)
	switch m {
	case cluster.ScaleCPU, cluster.ScaleMemory:
		return text + "%"
	case cluster.ScaleRequests:
		return text + "/s"
	}
	return text
}

func printSchedules(sess *session.Session, s api.ScaleView) error {
	if s.Scaling == nil || len(s.Scaling.Schedules) == 0 {
		return nil
	}
	sess.Printf("")
	t := output.Table{Titles: []string{"SCHEDULE", "ZONE", "MIN>", "MAX>", "COUNT>"}}
	for _, v := range s.Scaling.Schedules {
		t.Add(v.Cron, v.Zone, optionalNumber(v.Min), optionalNumber(v.Max), optionalNumber(v.Count))
	}
	return sess.PrintTable(t)
}

// optionalNumber formats a number, or "" for nil.
func optionalNumber(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}

func printChanges(sess *session.Session, s api.ScaleView) error {
	if len(s.Recent) == 0 {
		return nil
	}
	sess.Printf("")
	t := output.Table{Titles: []string{"CHANGED", "AGE>"}}
	for _, v := range s.Recent {
		t.Add(fmt.Sprintf("%d → %d", v.From, v.To), sess.Age(v.At))
	}
	return sess.PrintTable(t)
}

func printUses(sess *session.Session, s api.ScaleView) error {
	if len(s.Tasks) == 0 {
		return nil
	}
	sess.Printf("")
	t := output.Table{Titles: []string{"TASK", "NODE", "CPU>", "MEMORY>", "GROWTH>", "REQUESTS>"}}
	for _, v := range s.Tasks {
		growth, requests := "", ""
		if v.Growth != 0 {
			growth = output.Size(v.Growth) + "/min"
		}
		if v.Requests > 0 {
			requests = strconv.FormatFloat(v.Requests, 'f', 1, 64) + "/s"
		}
		t.Add(string(v.Task), v.Node, output.CPUs(v.CPU), output.Size(v.Memory), growth, requests)
	}
	return sess.PrintTable(t)
}

package stream

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// NewCheckCommand returns the command `berth check`.
func NewCheckCommand(sess *session.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Report the state of a task to a check of type ttl",
		Long: "Report to a check of type ttl that it passes, warns or fails. A report is valid for the ttl of the\n" +
			"check. Without another report in that time, the check fails. The meaning of the check decides what\n" +
			"follows: a failed readiness check makes the task failing, a failed liveness check restarts it in\n" +
			"place.",
		RunE: session.RunGroup,
	}
	for _, w := range []struct {
		word  cluster.TTLUpdate
		short string
	}{
		{cluster.TTLPass, "Report that a check passes"},
		{cluster.TTLWarn, "Report that a check warns"},
		{cluster.TTLFail, "Report that a check fails"},
	} {
		cmd.AddCommand(newUpdateCommand(sess, w.word, w.short))
	}
	return cmd
}

// checkCommand is `berth check pass`, `warn` or `fail`.
type checkCommand struct {
	*session.Session
	word    cluster.TTLUpdate
	message string
	attempt int
}

func newUpdateCommand(sess *session.Session, word cluster.TTLUpdate, short string) *cobra.Command {
	u := &checkCommand{Session: sess, word: word}
	cmd := &cobra.Command{
		Use:   string(word) + " TASK CHECK",
		Short: short,
		Args: session.Arguments(2, 2,
			"a task and the name of one of its checks of type ttl, such as worker.1.0 beat"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask),
		RunE:              u.run,
	}
	cmd.Flags().StringVarP(&u.message, "message", "m", "", "the reason, in one `line`; shown unless the check passes")
	cmd.Flags().IntVar(&u.attempt, "attempt", 0,
		"the `number` of the attempt, such as $BERTH_ATTEMPT in the task; default the newest")
	return cmd
}

// run sends an update to a check of a task. It prints nothing, because programs send updates every few seconds.
func (u *checkCommand) run(cmd *cobra.Command, args []string) error {
	c, err := u.Connect()
	if err != nil {
		return err
	}
	id := cluster.TaskID(args[0])
	if _, whole := id.Parts(); !whole {
		n, err := u.FindObject(cmd, c, args[0], wording.KindTask)
		if err != nil {
			return err
		}
		t, err := u.FindTask(cmd.Context(), c, n.Name)
		if err != nil {
			return err
		}
		id = t.ID
	}
	return c.UpdateCheck(cmd.Context(), id, u.attempt, args[1], api.CheckWord{Word: u.word, Message: u.message})
}

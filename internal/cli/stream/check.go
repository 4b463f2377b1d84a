package stream

import (
	"context"

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
		Short: "Say how a task is, to its checks of type ttl",
		Long: `Say to a check of type ttl that its task is well (pass), works with trouble (warn), or is not well (fail). The word stands
for the check's ttl; unless another comes in that time, the check fails. What follows is the check's meaning: a task that fails a
readiness check is failing, one that fails a liveness check is restarted in place.`,
		RunE: sess.RunGroup,
	}
	for _, w := range []struct {
		word  cluster.TTLUpdate
		short string
	}{
		{cluster.TTLPass, "Say that a task is well"},
		{cluster.TTLWarn, "Say that a task works, with trouble"},
		{cluster.TTLFail, "Say that a task is not well"},
	} {
		cmd.AddCommand(newUpdateCommand(sess, w.word, w.short))
	}
	return cmd
}

func newUpdateCommand(sess *session.Session, word cluster.TTLUpdate, short string) *cobra.Command {
	var message string
	var attempt int
	cmd := &cobra.Command{
		Use:   string(word) + " TASK CHECK",
		Short: short,
		Args: session.Arguments(2, 2,
			"a task and the name of one of its checks of type ttl, such as worker.1.0 beat"),
		ValidArgsFunction: sess.CompleteNames(wording.KindTask),
		RunE: func(cmd *cobra.Command, args []string) error {
			said := api.CheckWord{Word: word, Message: message}
			return sendUpdate(cmd.Context(), sess, args[0], attempt, args[1], said)
		},
	}
	cmd.Flags().StringVarP(&message, "message", "m", "", "why, in one `line`; it is shown where the word is not pass")
	cmd.Flags().IntVar(&attempt, "attempt", 0,
		"the `number` of the attempt that is meant, such as $BERTH_ATTEMPT within it; default the newest")
	return cmd
}

// sendUpdate sends an update to a check of a task. It prints nothing, because programs send updates every few seconds.
func sendUpdate(ctx context.Context, sess *session.Session, task string, attempt int, check string,
	word api.CheckWord,
) error {
	c, err := sess.Connect()
	if err != nil {
		return err
	}
	id := cluster.TaskID(task)
	if _, whole := id.Parts(); !whole {
		t, err := session.FindTask(ctx, c, task)
		if err != nil {
			return err
		}
		id = t.ID
	}
	return c.UpdateCheck(ctx, id, attempt, check, word)
}

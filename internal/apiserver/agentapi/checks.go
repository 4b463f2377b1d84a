package agentapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/access"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/apiserver/snapshot"
	"github.com/berthd/berth/internal/apiserver/strictjson"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/observe"
	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/transport"
)

// ChecksAPI passes what is said to checks of tasks on to their nodes.
type ChecksAPI struct {
	Tables snapshot.Tables
	Find   TaskFinder
	Agents Streams
}

// wordTimeout bounds how long a word may take to its node and back.
const wordTimeout = 15 * time.Second

// Routes returns the operations of checks.
func (a *ChecksAPI) Routes() []route.Route {
	return []route.Route{{
		Method: "POST", Path: "/v1/tasks/{task}/checks/{check}", Name: "sayCheck", Role: cluster.RoleSubmitter,
		Quiet: true,
		Summary: "Says to a check of type ttl how the task is: pass, warn or fail. The answer comes once " +
			"the task's node has kept it.",
		Query: []route.Parameter{route.QueryParam(
			"attempt", "integer",
			"the attempt's number: a word for another one is refused; default the newest",
		)},
		Body: reflect.TypeFor[api.CheckWord](), Status: http.StatusNoContent, Serve: a.sayCheck,
	}}
}

// sayCheck passes a word on to the agent of a task, which owns its checks. Nothing of it is stored here, so it goes
// without a quorum, and no change of leader touches it. It is left out of the audit log, which a word every few seconds
// would fill: a word that is not pass says in the events who said it.
func (a *ChecksAPI) sayCheck(w http.ResponseWriter, r *http.Request) error {
	var word api.CheckWord
	if err := strictjson.ReadBody(w, r, &word); err != nil {
		return err
	}
	if err := validWord(&word); err != nil {
		return err
	}
	snap := a.Tables.Snapshot()
	v, row, err := a.Find(snap, r)
	if err != nil {
		return err
	}
	if row == nil || v.State == cluster.StatePending {
		return waiting(v)
	}
	if v.State.Terminal() {
		return respond.Problemf(http.StatusConflict, "attempt %d of task %s has ended: it %s", v.Attempt, v.ID, v.State)
	}
	name := r.PathValue("check")
	if err := ttlCheck(snap, v.Definition, name); err != nil {
		return err
	}
	message := word.Message
	if word.Word != cluster.TTLPass {
		by := "said by " + access.CallerOf(r.Context()).Signature()
		if message = by; word.Message != "" {
			message = word.Message + ", " + by
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), wordTimeout)
	defer cancel()
	stream, err := a.Agents.open(ctx, row.Node, transport.StreamRequest{
		Kind: transport.StreamTTLUpdate, Task: row.Task, UUID: observe.UUID(row),
		Word: &transport.WordRequest{Check: name, Word: word.Word, Message: message},
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // ends the read below
	defer stop()
	defer stream.Close() // it was only read
	if err := wordKept(stream, row.Node); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// validWord returns all faults of a word.
func validWord(word *api.CheckWord) error {
	var faults cluster.Faults
	if !word.Word.Known() {
		faults = append(faults, cluster.Fault{
			Path:    "word",
			Message: fmt.Sprintf("is %q, want one of pass, warn, fail", respond.Clip(string(word.Word))),
		})
	}
	if len(word.Message) > cluster.MaxTTLMessage || !utf8.ValidString(word.Message) ||
		strings.ContainsFunc(word.Message, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		faults = append(faults, cluster.Fault{
			Path:    "message",
			Message: fmt.Sprintf("wants to be one line of text, of at most %d bytes", cluster.MaxTTLMessage),
		})
	}
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return nil
}

// ttlCheck returns an error unless the definition has a check of type ttl of the name.
func ttlCheck(snap *store.Snapshot, ref cluster.Ref, name string) error {
	def, ok := snap.Definition(ref)
	if !ok {
		return nil // the agent knows
	}
	var known []string
	for i := range def.Value.Checks {
		if c := &def.Value.Checks[i]; c.Type == cluster.CheckTTL {
			known = append(known, c.Name)
		} else if c.Name == name {
			return respond.Problemf(http.StatusConflict,
				"check %s of %s is of type %s: its agent looks itself, and nothing can be said to it",
				respond.Clip(name), ref,
				c.Type)
		}
	}
	switch {
	case slices.Contains(known, name):
		return nil
	case len(known) == 0:
		return respond.Problemf(http.StatusNotFound, "%s has no check %q, and none of type ttl", ref,
			respond.Clip(name))
	}
	return respond.Problemf(http.StatusNotFound, "%s has no check %q; of type ttl it has %s", ref, respond.Clip(name),
		strings.Join(known, ", "))
}

// wordKept reads what the agent says to a word.
func wordKept(stream io.Reader, node string) error {
	f, err := transport.NewFrameReader(stream).Next()
	switch {
	case errors.Is(err, io.EOF):
		return respond.Problemf(http.StatusBadGateway,
			"node %s closed the connection: its agent is of a build that has no checks of type ttl, or it "+
				"ended; say it again", node)
	case err != nil:
		return respond.Problemf(http.StatusBadGateway, "the connection to node %s broke: %v; say it again", node, err)
	}
	end, err := f.End()
	if err != nil {
		return fmt.Errorf("read the answer to a word: %w", err)
	}
	if end.Error != "" {
		return respond.Problemf(http.StatusConflict, "node %s: %s", node, end.Error)
	}
	return nil
}

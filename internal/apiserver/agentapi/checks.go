package agentapi

import (
	"context"
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

// ChecksAPI passes updates of ttl checks on to the nodes of the tasks.
type ChecksAPI struct {
	Tables snapshot.Tables
	Find   TaskFinder
	Agents Streams
}

// updateTimeout bounds the time of an update to its node and back.
const updateTimeout = 15 * time.Second

// Routes returns the operations of checks.
func (a *ChecksAPI) Routes() []route.Route {
	return []route.Route{{
		Method: "POST", Path: "/v1/tasks/{task}/checks/{check}", Name: "sayCheck", Role: cluster.RoleSubmitter,
		Quiet: true,
		Summary: "Updates a check of type ttl: pass, warn or fail. The answer comes once the task's node has stored " +
			"the update.",
		Query: []route.Parameter{route.QueryParam(
			"attempt", "integer",
			"the attempt's number: an update for another one is refused; default the newest",
		)},
		Body: reflect.TypeFor[api.CheckWord](), Status: http.StatusNoContent, Serve: a.updateCheck,
	}}
}

// updateCheck passes an update to the agent of a task, which owns the task's checks. The server stores nothing, so that
// an update needs no quorum and no leader. The audit log leaves out updates, which would fill it. The events name the
// sender of each update that is not pass.
func (a *ChecksAPI) updateCheck(w http.ResponseWriter, r *http.Request) error {
	var word api.CheckWord
	if err := strictjson.ReadBody(w, r, &word); err != nil {
		return err
	}
	if err := updateFaults(&word); err != nil {
		return err
	}
	snap := a.Tables.Snapshot()
	v, row, err := a.Find(snap, r)
	if err != nil {
		return err
	}
	if row == nil || v.State == cluster.StatePending {
		return errNotPlaced(v)
	}
	if v.State.Terminal() {
		return respond.Problemf(http.StatusConflict, "attempt %d of task %s has ended: it %s", v.Attempt, v.ID, v.State)
	}
	name := r.PathValue("check")
	if err := requireTTLCheck(snap, v.Definition, name); err != nil {
		return err
	}
	message := word.Message
	if word.Word != cluster.TTLPass {
		by := "said by " + access.CallerOf(r.Context()).Signature()
		if message = by; word.Message != "" {
			message = word.Message + ", " + by
		}
	}
	ctx, cancel := context.WithTimeout(r.Context(), updateTimeout)
	defer cancel()
	stream, err := a.Agents.open(ctx, row.Node, transport.StreamRequest{
		Kind: transport.StreamTTLUpdate, Task: row.Task, UUID: observe.UUID(row),
		Word: &transport.WordRequest{Check: name, Word: word.Word, Message: message},
	})
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // unblocks the read below
	defer stop()
	defer stream.Close() // nothing was written that could be lost
	if err := readAcknowledgement(stream, row.Node); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// updateFaults returns all faults of an update.
func updateFaults(word *api.CheckWord) error {
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
			Message: fmt.Sprintf("must be one line of text of at most %d bytes", cluster.MaxTTLMessage),
		})
	}
	if len(faults) > 0 {
		return respond.Invalid(faults)
	}
	return nil
}

// requireTTLCheck returns an error unless the definition has a check of type ttl with the name.
func requireTTLCheck(snap *store.Snapshot, ref cluster.Ref, name string) error {
	def, ok := snap.Definition(ref)
	if !ok {
		return nil // the agent decides
	}
	var known []string
	for i := range def.Value.Checks {
		if c := &def.Value.Checks[i]; c.Type == cluster.CheckTTL {
			known = append(known, c.Name)
		} else if c.Name == name {
			return respond.Problemf(http.StatusConflict,
				"check %s of %s is of type %s: its agent runs it, and it accepts no updates",
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

// readAcknowledgement reads the agent's answer to an update.
func readAcknowledgement(stream io.Reader, node string) error {
	f, err := transport.NewFrameReader(stream).Next()
	if err != nil {
		return respond.Problemf(http.StatusBadGateway, "the connection to node %s broke: %v; retry", node, err)
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

package hostapi

import (
	"net/http"
	"reflect"
	"strconv"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/lists"
)

// Types of events in the stream of a node.
const (
	eventState  = "state"  // all that runs on the node; api.HostState
	eventChange = "change" // what changed since the last event; api.HostChange
)

// coalesceDelay is how long a change waits for others, so that changes of one moment are one event.
const coalesceDelay = 50 * time.Millisecond

// streamChanges sends everything, and then what changed. A slow reader gets several changes in one event: the next
// event is computed once the last one is written, so no reader delays a task or another reader.
func (s *Server) streamChanges(w http.ResponseWriter, r *http.Request) error {
	end, err := s.limits.openStream(r)
	if err != nil {
		return err
	}
	defer end()
	sent := s.readings.fresh() // what the caller has changed before is in the first event
	out, err := lists.OpenSSE(w)
	if err != nil {
		return err
	}
	whole, err := sent.JSON()
	if err != nil {
		return err
	}
	number := uint64(1)
	if err := send(out, eventState, number, whole); err != nil {
		return err
	}
	ping := time.NewTicker(lists.PingEvery)
	defer ping.Stop()
	for {
		select {
		case <-r.Context().Done():
			return nil
		case <-ping.C:
			if err := out.Ping(); err != nil {
				return err
			}
			continue
		case <-sent.changed:
		case <-sent.changedOwn:
		}
		select {
		case <-r.Context().Done():
			return nil
		case <-time.After(coalesceDelay):
		}
		now := s.readings.shared()
		change, differs, err := now.since(sent)
		if err != nil {
			return err
		}
		if sent = now; !differs {
			continue
		}
		number++
		if err := send(out, eventChange, number, change); err != nil {
			return err
		}
	}
}

// send sends an event at once.
func send(out *lists.SSE, event string, number uint64, data []byte) error {
	if err := out.Write(lists.AppendEvent(nil, event, strconv.FormatUint(number, 10), data)); err != nil {
		return err
	}
	return out.Flush()
}

// difference returns what changed from one state to another, apart from what changes all the time: what the node uses,
// and when a server last answered.
func difference(from, to *api.HostState) (c api.HostChange, differs bool) {
	type key struct {
		name    string
		attempt int
	}
	known := map[key]*api.HostTask{}
	for i := range from.Tasks {
		known[key{from.Tasks[i].Name, from.Tasks[i].Attempt}] = &from.Tasks[i]
	}
	left := map[string]bool{}
	c = api.HostChange{Node: to.Node, Owner: to.Owner, Resources: to.Resources}
	for i := range to.Tasks {
		t := &to.Tasks[i]
		left[t.Name] = true
		if was := known[key{t.Name, t.Attempt}]; was == nil || !reflect.DeepEqual(was, t) {
			c.Tasks = append(c.Tasks, *t)
		}
	}
	for i := range from.Tasks {
		if name := from.Tasks[i].Name; !left[name] {
			left[name] = true // named once
			c.Removed = append(c.Removed, name)
		}
	}
	was, is := from.Owner, to.Owner
	was.Answered, is.Answered = time.Time{}, time.Time{}
	return c, len(c.Tasks)+len(c.Removed) > 0 || !reflect.DeepEqual(was, is)
}

package etcdlog

import (
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/berthd/berth/internal/store"
)

// Contacts tracks the other members from etcd's messages, which etcd repeats for as long as a member is down. It logs
// one line when a member is lost and one when it is back; all other messages are for debugging. The zero value is
// ready. Safe for concurrent use.
type Contacts struct {
	mu sync.Mutex
	// state is "" until a member was reached or missed.
	state map[string]contact
	// others are the members that turned out to belong to another store. strangers are the names of servers of another
	// store that called this one.
	others, strangers map[string]bool
	// end is etcd's text why this member's server ended by itself.
	end string
}

type contact string

const (
	reached contact = "reached"
	missed  contact = "missed"
)

// Messages of etcd.
const (
	messageActive    = "peer became active"
	messageInactive  = "peer became inactive (message send to peer failed)"
	messageUnhealthy = "prober detected unhealthy status"
	messageRetry     = "retrying of unary invoker failed" // the caller reports a failure of all retries
	messageStranger  = "request cluster ID mismatch"      // about a server that calls this member
)

// Messages of etcd when it ends by itself: messageEnd has a cause, which contains messageRemoved after a removal.
const (
	messageEnd     = "server error"
	messageRemoved = "permanently removed"
)

// isRepeated reports whether etcd repeats a message while another member is down. Contacts reports the lost member
// once.
func isRepeated(message string) bool {
	switch message {
	case messageInactive, messageUnhealthy, "failed to reach the peer URL", "failed to get version",
		"failed to get cluster response",
		"peer deactivated again":
		return true
	}
	return strings.HasSuffix(message, "TCP streaming connection with remote peer") || // lost, closed, stopped
		strings.HasPrefix(message, "dropped ") && strings.Contains(message, "Raft message since") ||
		strings.Contains(message, "cluster ID mismatch")
}

// handle handles a message of etcd. It returns true if the message needs no further log line.
func (c *Contacts) handle(log *slog.Logger, message string, fields map[string]any) (done bool) {
	text := func(keys ...string) string {
		for _, k := range keys {
			if s, ok := fields[k].(string); ok && s != "" {
				return s
			}
		}
		return ""
	}
	if message == messageEnd {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.end = text("error")
		return false
	}
	peer := text("peer-id", "remote-peer-id", "remote-peer-server-name")
	if peer == "" {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == nil {
		c.state, c.others, c.strangers = map[string]contact{}, map[string]bool{}, map[string]bool{}
	}
	was := c.state[peer]
	switch {
	case message == messageActive:
		c.state[peer] = reached
		delete(c.others, peer)
		if was == missed {
			log.Info("another member of the store is back", "member", peer)
		}
		return true
	case message == messageInactive && was != missed, message == messageUnhealthy && was == "":
		c.state[peer] = missed
		log.Warn("another member of the store is not reached; this is said once until it is back", "member", peer,
			"error", text("error"))
		return true
	case message == messageStranger:
		if !c.strangers[peer] {
			c.strangers[peer] = true
			log.Warn("a server of another store calls this one: if this store was restored, that server "+
				"is of the one before and must join again from an empty directory", "server", peer)
		}
		return true
	case strings.Contains(message, "cluster ID mismatch"):
		if !c.others[peer] {
			c.others[peer] = true
			log.Error("another member belongs to another store: if that one was restored from a snapshot, this "+
				"server's store was replaced; stop this server and join again from an empty directory",
				"member", peer)
		}
		return true
	}
	return false
}

// Ended returns why this member's server ended by itself, and whether the cause is that the member was removed.
func (c *Contacts) Ended() (why string, removed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end, strings.Contains(c.end, messageRemoved)
}

// Replaced returns an alarm for each member that was found to belong to another store.
func (c *Contacts) Replaced() (alarms []store.EngineAlarm) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, peer := range slices.Sorted(maps.Keys(c.others)) {
		alarms = append(alarms, store.EngineAlarm{Name: store.AlarmReplaced, Member: peer})
	}
	return alarms
}

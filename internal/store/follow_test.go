package store

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/berthd/berth/internal/cluster"
)

func isAwake(wake <-chan struct{}) bool {
	select {
	case <-wake:
		return true
	default:
		return false
	}
}

// A follower that names topics receives, and is woken by, only those topics.
func TestFollowerOfTopics(t *testing.T) {
	tables := NewTables(TablesConfig{})
	s := newState(nil)
	all, some := tables.Follow(), tables.Follow(TopicNodes, TopicServers)
	for _, f := range []*Follower{all, some} {
		if !isAwake(f.Wake()) || !f.Take().Resync {
			t.Fatal("a follower does not begin with a resync")
		}
	}
	job := cluster.OwnerRef{Kind: cluster.KindJob, Cluster: "c", Name: "j"}
	s.delta.addOwner(job)
	s.delta.addAttempt("n1", "c.j.1.s.0", 1)
	tables.publish(s)
	if isAwake(some.Wake()) {
		t.Error("an attempt wakes who follows nodes and servers")
	}
	s.delta.addNode("n2")
	s.delta.addAttempt("n1", "c.j.1.s.1", 1)
	s.delta.topics |= TopicEvents | TopicServers
	tables.publish(s)
	if !isAwake(some.Wake()) {
		t.Error("a node does not wake who follows nodes")
	}
	if diff := cmp.Diff(Changes{Nodes: map[string]bool{"n2": true}, Servers: true}, some.Take(),
		cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("nodes and servers (-want +got):\n%s", diff)
	}
	want := Changes{
		Owners: map[cluster.OwnerRef]bool{job: true}, Nodes: map[string]bool{"n2": true}, Events: true, Servers: true,
		Attempts: map[AttemptKey]bool{{"c.j.1.s.0", 1}: true, {"c.j.1.s.1", 1}: true},
	}
	if diff := cmp.Diff(want, all.Take(), cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	s.delta.resync = true
	tables.publish(s)
	if !isAwake(some.Wake()) || !some.Take().Resync {
		t.Error("a resync does not reach a follower of topics")
	}
}

// A node's follower has each changed attempt once and in order. Its memory is bounded by the number of attempts, even
// if they are never taken.
func TestNodeFollowerTakesInOrder(t *testing.T) {
	tables := NewTables(TablesConfig{})
	s := newState(nil)
	f := tables.FollowNode("n1")
	for i := range 10_000 {
		s.delta.addAttempt("n1", cluster.TaskID(fmt.Sprint("c.s.1.", 9-i%10)), 1)
		s.delta.addAttempt("n2", "c.s.1.other", 1)
		tables.publish(s)
	}
	if n := len(f.attempts); n > 200 {
		t.Errorf("collected: got %d for 10 attempts", n)
	}
	var got []string
	for _, k := range f.TakeInto(nil) {
		got = append(got, strings.TrimPrefix(string(k.Task), "c.s.1."))
	}
	if diff := cmp.Diff(strings.Split("0123456789", ""), got); diff != "" {
		t.Errorf("attempts (-want +got):\n%s", diff)
	}
	if again := f.TakeInto(nil); len(again) != 0 {
		t.Errorf("a second time: got %v, want nothing", again)
	}
}

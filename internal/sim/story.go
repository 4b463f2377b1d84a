package sim

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/internal/controlplane"
	"github.com/berthd/berth/internal/logic/scheduler/window"
)

// Fault is the kind of a story's event.
type Fault string

// Faults. A target is a server ("s1"), a node ("n1"), the store's engine ("db"), a user's object ("web"), or a link:
// "n1>s2" for what n1 sends to s2, "n1-s2" for both directions. External schedulers are on the machine "x".
const (
	ServerCrash Fault = "server-crash" // the process is killed, and restarted afterwards
	// the process is killed at a moment of its next writes: "plan after 2" is once the second plan record is durable
	CrashAt     Fault = "crash-at"
	ServerPause Fault = "server-pause" // the process stops between two instructions, and continues later
	WallJump    Fault = "wall-jump"    // a server's wall clock is set by the argument
	BootJump    Fault = "boot-jump"    // a machine's boot-time clock leaps forward, as after a suspension
	Lag         Fault = "lag"          // a server's watch is late by the argument

	EngineCrash   Fault = "engine-crash"
	EngineFull    Fault = "engine-full"    // writes are refused for want of space
	EngineSlow    Fault = "engine-slow"    // a commit takes up to the argument longer
	EngineStall   Fault = "engine-stall"   // commits wait two seconds of every three
	EngineCompact Fault = "engine-compact" // lagging watches start over
	EngineLate    Fault = "engine-late"    // some of a server's commits are lost, and written much later
	EngineDeaf    Fault = "engine-deaf"    // the acknowledgements of some of a server's commits are lost
	Save          Fault = "save"           // a snapshot is taken
	Restore       Fault = "restore"        // the last snapshot is restored while all servers are stopped
	Foreign       Fault = "foreign"        // a stranger overwrites records of the node

	AgentCrash Fault = "agent-crash" // the agent's process is killed; programs continue
	Reboot     Fault = "reboot"      // the machine restarts; no program survives
	Wipe       Fault = "wipe"        // the agent's data directory is lost; programs continue
	Replace    Fault = "replace"     // reboot and wipe
	Kill       Fault = "kill"        // something outside kills a program of the node
	Trouble    Fault = "trouble"     // the executor is slow, hangs, fails, loses answers
	DiskFails  Fault = "disk-fails"  // the agent cannot write its state
	Lie        Fault = "lie"         // the agent sends false reports, of the kind in the argument

	// the argument is the measured load of a service from now on; "fail" is no answer
	Load     Fault = "load"
	Pressure Fault = "pressure" // the node is short of memory, and proposes a task to move

	Cut   Fault = "cut"   // nothing passes on a link
	Noise Fault = "noise" // messages on a link are late, lost, repeated

	User Fault = "user" // a user makes the change in the argument to the target

	// a process of the external scheduler of the target, a domain, runs; without a duration until the end. The argument
	// is its mode.
	Scheduler Fault = "scheduler"
	// a program places the tasks of the target, a domain, by records in the store, as above
	Records Fault = "records"
)

// leaderTarget is the target of a crash of the server that leads when the event begins.
const leaderTarget = "leader"

// Event is one event of a story.
type Event struct {
	At     time.Duration // since the start of the story
	Fault  Fault
	Target string
	For    time.Duration // duration, 0 for a moment
	Arg    string
}

// String returns the event as a line of a story.
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", e.At, e.Fault, e.Target)
	if e.For != 0 {
		fmt.Fprintf(&b, " for %s", e.For)
	}
	if e.Arg != "" {
		fmt.Fprintf(&b, " : %s", e.Arg)
	}
	return b.String()
}

// Story is the size of a fleet and all its events.
type Story struct {
	Seed    uint64
	Servers int
	Nodes   int
	// Consul limits the engine to the abilities of Consul.
	Consul bool
	Events []Event // by time
}

// End returns the end of the last event.
func (s *Story) End() time.Duration {
	var end time.Duration
	for _, e := range s.Events {
		end = max(end, e.At+e.For)
	}
	return end
}

// Has reports whether the story contains an event of one of the kinds.
func (s *Story) Has(kinds ...Fault) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return slices.Contains(kinds, e.Fault) })
}

// claims reports whether a node changes its domain in the story.
func (s *Story) claims() bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Fault == User && e.Arg == "claim" })
}

// projectAfter is how long plan records speak for their attempts: in a third of all fleets hardly at all, in a third as
// in real ones.
func (s *Story) projectAfter() time.Duration {
	return []time.Duration{controlplane.ProjectAfter, 500 * time.Millisecond, 8 * time.Second}[s.Seed%3]
}

// immediate reports whether the default domain asks for the immediate projection: in a sixth of all fleets.
func (s *Story) immediate() bool { return s.Seed%6 == 4 }

// window returns the sizes of the windows of a long queue. In a quarter of all stories, a placement considers few
// requests of jobs: two in a small fleet.
func (s *Story) window() window.Sizes {
	if s.Seed%4 != 3 {
		return window.DefaultSizes()
	}
	few := max(1, s.Nodes/7)
	return window.Sizes{Most: 2 * few, Head: few, HeadLeast: few, Turns: few}
}

// cuts reports whether a link of the machine is cut at some time.
func (s *Story) cuts(machine string) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool {
		return e.Fault == Cut && strings.Contains(e.Target, machine)
	})
}

// erases reports whether a foreign writer deletes all records of a task.
func (s *Story) erases() bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool { return e.Fault == Foreign && e.Arg == "delete" })
}

// hits reports whether an event of one of the kinds has the target.
func (s *Story) hits(target string, kinds ...Fault) bool {
	return slices.ContainsFunc(s.Events, func(e Event) bool {
		return e.Target == target && slices.Contains(kinds, e.Fault)
	})
}

const storyHead = "berth-sim-story-1"

// String returns the story as text that ParseStory reads.
func (s *Story) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s seed %d servers %d nodes %d consul %t\n", storyHead, s.Seed, s.Servers, s.Nodes, s.Consul)
	for _, e := range s.Events {
		b.WriteString(e.String())
		b.WriteByte('\n')
	}
	return b.String()
}

// ParseStory reads the format of String. It ignores empty lines and lines that begin with "#".
func ParseStory(r io.Reader) (*Story, error) {
	var s *Story
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case s == nil:
			s = new(Story)
			if _, err := fmt.Sscanf(line, storyHead+" seed %d servers %d nodes %d consul %t", &s.Seed, &s.Servers,
				&s.Nodes, &s.Consul); err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
		default:
			e, err := parseEvent(line)
			if err != nil {
				return nil, fmt.Errorf("line %d: %w", n, err)
			}
			s.Events = append(s.Events, e)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read the story: %w", err)
	}
	if s == nil {
		return nil, errors.New("read the story: it is empty")
	}
	if s.Servers < 1 || s.Servers > 9 || s.Nodes < 0 || s.Nodes > 10_000 {
		return nil, fmt.Errorf(
			"%d servers and %d nodes: want 1 to 9 servers and at most 10,000 nodes",
			s.Servers,
			s.Nodes,
		)
	}
	s.sort()
	return s, nil
}

func (s *Story) sort() {
	slices.SortStableFunc(s.Events, func(a, b Event) int { return int(a.At - b.At) })
}

func parseEvent(line string) (Event, error) {
	head, arg, _ := strings.Cut(line, " : ")
	f := strings.Fields(head)
	if len(f) != 3 && len(f) != 5 {
		return Event{}, fmt.Errorf("%q is no event: want <time> <fault> <target> [for <length>] [: <argument>]", line)
	}
	at, err := time.ParseDuration(f[0])
	if err != nil {
		return Event{}, err
	}
	e := Event{At: at, Fault: Fault(f[1]), Target: f[2], Arg: strings.TrimSpace(arg)}
	if len(f) == 5 {
		if e.For, err = time.ParseDuration(f[4]); err != nil || f[3] != "for" {
			return Event{}, fmt.Errorf("%q: want \"for <length>\"", line)
		}
	}
	if at < 0 || e.For < 0 {
		return Event{}, fmt.Errorf("%q: times are not negative", line)
	}
	return e, nil
}

// duration reads the argument of an event, or returns the standard.
func (e *Event) duration(standard time.Duration) time.Duration {
	if d, err := time.ParseDuration(e.Arg); err == nil {
		return d
	}
	return standard
}

// name returns "<kind><n>".
func name(kind string, n int) string { return kind + strconv.Itoa(n) }

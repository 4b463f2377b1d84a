package watcher_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/watcher"
	"github.com/berthd/berth/internal/testkit/script"
)

// TestScripts plays the stories in testdata, see package script. Commands:
//
//	register [session=N] [synced]   the node registers; synced once full report received
//	pulse at=D next=D [session=N]   the node gives a sign of life and promises the next one
//	register … token=G/I/E          the agent also shows a token
//	lead D                          a new leader takes over
//	domain S [incarnation=N]        the watcher's domain from here on
//	host [domain=S] [generation=N] [cordon] [drain] [deadline=D] [force] [gone]   the operator's settings
//	left N [WORDS…]                 N attempts are left on the node; WORDS say why some of them cannot move
//	unkillable [TASK]               the task survives KILL; without TASK none does
//	gone | back | pause | resume    the node is known to be gone; a mass silence stops rescheduling
//	held | decided                  the decision about a store that went back is awaited
//	forget                          the records and signs of life of the node are removed
//	judge D                         the watcher judges; its verdict is written
//	watch D                         the watcher judges every four seconds until D; prints changes
func TestScripts(t *testing.T) {
	script.Files(t, play)
}

// play returns the script with the present output of its commands.
func play(t *testing.T, text string) string {
	t.Helper()
	s := stage{in: watcher.Input{Options: watcher.DefaultOptions()}}
	return script.Play(t, text, &s.out, func(words []string) { s.do(t, words) })
}

type stage struct {
	in   watcher.Input
	last time.Duration
	out  strings.Builder
}

func (s *stage) do(t *testing.T, words []string) {
	t.Helper()
	if len(words) == 0 {
		return
	}
	arg := map[string]string{}
	for _, w := range words[1:] {
		k, v, _ := strings.Cut(w, "=")
		arg[k] = v
	}
	number := func(key string) (n uint64) {
		if arg[key] != "" {
			if _, err := fmt.Sscan(arg[key], &n); err != nil {
				t.Fatalf("%v: %v", words, err)
			}
		}
		return n
	}
	span := func(text string) time.Duration {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatalf("%v: %v", words, err)
		}
		return d
	}
	switch words[0] {
	case "register":
		_, synced := arg["synced"]
		s.in.Status = &cluster.NodeStatus{Name: "n1", Session: max(1, number("session")), Synced: synced}
		if token := arg["token"]; token != "" {
			seen := &s.in.Status.Token
			if _, err := fmt.Sscanf(token, "%d/%d/%d", &seen.Generation, &seen.Incarnation, &seen.Epoch); err != nil {
				t.Fatalf("%v: %v", words, err)
			}
		}
	case "pulse":
		session := uint64(1)
		if s.in.Status != nil {
			session = s.in.Status.Session
		}
		if n := number("session"); n != 0 {
			session = n
		}
		s.in.Pulse = &cluster.Pulse{Session: session, At: span(arg["at"]), Next: span(arg["next"])}
	case "lead":
		s.in.Armed, s.last = span(words[1]), span(words[1])
	case "host":
		s.host(t, arg, number("generation"))
	case "domain":
		s.in.Domain, s.in.Incarnation = words[1], number("incarnation")
	case "left":
		s.in.Left, _ = strconv.Atoi(words[1])
		s.in.Stuck = strings.Join(words[2:], " ")
	case "unkillable":
		s.in.Unkillable = cluster.TaskID(strings.Join(words[1:], ""))
	case "forget":
		s.in.Host, s.in.Node, s.in.Status, s.in.Pulse = nil, nil, nil, nil
	case "gone":
		s.in.Gone = true
	case "back":
		s.in.Gone = false
	case "pause", "resume":
		s.in.Paused = words[0] == "pause"
	case "held", "decided":
		s.in.Held = words[0] == "held"
	case "judge":
		s.judge(span(words[1]), true)
	case "watch":
		for end := span(words[1]); s.last < end; {
			s.judge(min(s.last+4*time.Second, end), false)
		}
	default:
		t.Fatalf("unknown command %v", words)
	}
}

func (s *stage) host(t *testing.T, arg map[string]string, generation uint64) {
	t.Helper()
	h := &cluster.Host{Name: "n1", Domain: arg["domain"], Generation: generation}
	_, h.Cordon = arg["cordon"]
	_, h.Gone = arg["gone"]
	if _, drain := arg["drain"]; drain {
		h.Drain = &cluster.Drain{}
		_, h.Drain.Force = arg["force"]
		if at := arg["deadline"]; at != "" {
			d, err := time.ParseDuration(at)
			if err != nil {
				t.Fatal(err)
			}
			h.Drain.Deadline = time.Unix(0, 0).Add(d).UTC()
		}
	}
	s.in.Host = h
}

func (s *stage) judge(now time.Duration, always bool) {
	if s.last != 0 {
		s.in.Armed = watcher.Rearm(s.in.Armed, s.last, now, s.in.Options)
	}
	s.last, s.in.Now, s.in.Wall = now, now, time.Unix(0, 0).Add(now).UTC()
	s.in.WantedDomain = ""
	if s.in.Host != nil {
		s.in.WantedDomain = s.in.Host.Domain
	}
	v, ok := watcher.Judge(s.in)
	if !ok {
		fmt.Fprintf(&s.out, "%v nothing is known\n", now)
		return
	}
	if v.Foreign {
		fmt.Fprintf(&s.out, "%v not this domain's\n", now)
		return
	}
	node := v.Node
	s.in.Node = &node
	if !always && !v.Changed {
		return
	}
	fmt.Fprintf(&s.out, "%v %s", now, v.Node.State)
	if v.Silence > 0 {
		fmt.Fprintf(&s.out, ", silent for %v", v.Silence)
	}
	if a, b := v.Absence(false), v.Absence(true); a == b {
		fmt.Fprintf(&s.out, "; tasks %v", a)
	} else {
		fmt.Fprintf(&s.out, "; services %v, jobs %v", a, b)
	}
	if v.NextDecision != 0 {
		fmt.Fprintf(&s.out, "; next at %v", v.NextDecision)
	}
	if v.Event.Type != "" {
		fmt.Fprintf(&s.out, "; event %s: %s", v.Event.Type, v.Event.Message)
	}
	if v.Changed {
		fmt.Fprintf(&s.out, "; write %s/%d session %d", v.Node.Domain, v.Node.Generation, v.Node.Session)
	}
	if v.Forget {
		s.out.WriteString("; remove its records")
	}
	s.out.WriteString("\n")
}

package cron_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/cron"
	"github.com/berthd/berth/internal/testkit/script"
)

// TestScripts plays the stories in testdata, see package script. Commands:
//
//	cron every=D [concurrency=W] [missed=W] [within=D] [keep=N/N]
//	                                     the user writes the cron: a moment each D of the day
//	suspend | resume | delete | relabel  the user changes the cron
//	forget                       the cron's status is lost
//	end HHMM [failed]            the job of that moment ends
//	job HHMM                     a user makes a job of that name
//	decide HH:MM[:SS]            a decision at that time of the day, forwards or back; prints the result
//	decide-until HH:MM every D   decisions until that time; prints those with an effect
//	jobs                         prints the jobs
func TestScripts(t *testing.T) {
	script.Files(t, play)
}

// play returns the script with the present output of its commands.
func play(t *testing.T, text string) string {
	t.Helper()
	s := &stage{T: t, world: world{now: midnight()}}
	return script.Play(t, text, &s.out, func(words []string) { s.do(words[0], words[1:]) })
}

func midnight() time.Time { return time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC) }

type stage struct {
	*testing.T
	world
	out strings.Builder
}

func (s *stage) do(command string, words []string) {
	s.Helper()
	switch command {
	case "cron":
		s.write(words)
	case "suspend", "resume":
		s.spec.Suspended, s.spec.Updated = command == "suspend", s.now
	case "delete":
		s.spec.Deleted = true
	case "relabel":
		s.spec.Updated = s.now
	case "forget":
		s.status = nil
	case "end":
		if !s.finish("backup-20261120"+words[0], len(words) > 1) {
			s.Fatalf("no job %s", words[0])
		}
	case "job":
		s.jobs = append(s.jobs, cron.Job{Spec: &cluster.Job{Cluster: "c", Name: "backup-20261120" + words[0]}})
	case "decide":
		s.now = s.clock(words[0])
		s.printDecision(true)
	case "decide-until":
		end, step := s.clock(words[0]), s.span(words[2])
		for s.now.Before(end) {
			s.now = s.now.Add(step)
			s.printDecision(false)
		}
	case "jobs":
		for _, j := range s.jobs {
			state := "runs"
			switch {
			case j.Failed:
				state = "failed"
			case j.Done:
				state = "succeeded"
			}
			fmt.Fprintln(&s.out, j.Spec.Name, state)
		}
	default:
		s.Fatalf("no command %q", command)
	}
}

// write writes the cron as the API server would.
func (s *stage) write(words []string) {
	c := &cluster.Cron{
		Cluster: "c", Name: "backup", Concurrency: cluster.CronForbid, Missed: cluster.CronOnce,
		Within: cluster.DefaultCronWithin,
	}
	c.Created, c.Updated = s.now, s.now
	if s.spec != nil {
		c.Created = s.spec.Created
	}
	for _, w := range words {
		k, v, _ := strings.Cut(w, "=")
		switch k {
		case "every":
			s.every, c.Schedules = s.span(v), []string{v}
		case "concurrency":
			c.Concurrency = cluster.CronConcurrency(v)
		case "missed":
			c.Missed = cluster.CronMissed(v)
		case "within":
			c.Within = cluster.Duration(s.span(v))
		case "keep":
			a, b, _ := strings.Cut(v, "/")
			c.KeepSucceeded, c.KeepFailed = s.number(a), s.number(b)
		default:
			s.Fatalf("no word %q", w)
		}
	}
	s.spec = c
}

// printDecision decides, carries the decision out and prints it.
func (s *stage) printDecision(always bool) {
	d := s.step()
	var parts []string
	for _, j := range d.Make {
		parts = append(parts, "make "+j.Name)
	}
	for _, name := range d.Cancel {
		parts = append(parts, "cancel "+name)
	}
	for _, name := range d.Delete {
		parts = append(parts, "delete "+name)
	}
	for _, e := range d.Events {
		parts = append(parts, fmt.Sprintf("%s (%s)", e.Type, e.Message))
	}
	if always || len(parts) > 0 {
		parts = append(parts, d.Message)
		fmt.Fprintln(&s.out, s.now.Format("15:04:05"), strings.Join(slices.DeleteFunc(parts, func(p string) bool {
			return p == ""
		}), "; "))
	}
}

func (s *stage) clock(text string) time.Time {
	s.Helper()
	layout := "15:04"
	if strings.Count(text, ":") == 2 {
		layout = "15:04:05"
	}
	t, err := time.Parse(layout, text)
	if err != nil {
		s.Fatal(err)
	}
	return midnight().Add(time.Duration(t.Hour())*time.Hour + time.Duration(t.Minute())*time.Minute +
		time.Duration(t.Second())*time.Second)
}

func (s *stage) span(text string) time.Duration {
	s.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

func (s *stage) number(text string) *int {
	s.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.Fatal(err)
	}
	return &n
}

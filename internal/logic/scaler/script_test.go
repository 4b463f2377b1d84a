package scaler_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scaler"
	"github.com/berthd/berth/internal/testkit/script"
)

// TestScripts plays the stories in testdata, see package script. Commands:
//
//	service count=N min=N max=N [suspended] [stopped]   the user writes the service, without targets and schedules
//	count N                      the user changes the count
//	target METRIC=N [whole]      one more target
//	up|down [window=D] [step=P] [every=D]
//	schedule [min=N] [max=N] [count=N]   one more schedule
//	fire I…                      a moment of those schedules is now
//	obstacle [WORDS]             from now on the count may not grow, for that reason, or may again
//	leader                       another server takes over and has no earlier estimates
//	at D [V[/TASKS[/AGE]]…]      a decision D after the beginning: for each target the value, by default of all
//	                             tasks and measured now, or "-" for an unknown one. Prints the count
//	every D until D V…           decisions every D with the same values; prints changes of the count or the message
func TestScripts(t *testing.T) {
	script.Files(t, play)
}

// play returns the script with the present output of its commands.
func play(t *testing.T, text string) string {
	t.Helper()
	s := &stage{T: t, now: epoch()}
	return script.Play(t, text, &s.out, func(words []string) { s.do(words[0], words[1:]) })
}

// epoch returns the time at which the scripts begin.
func epoch() time.Time { return time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC) }

// stage is a service and the state that a caller keeps for it.
type stage struct {
	*testing.T
	now       time.Time
	spec      cluster.Service
	scale     *cluster.Scale
	estimates []scaler.Estimate
	fired     []time.Time
	out       strings.Builder

	obstacle string
}

func (s *stage) do(command string, words []string) {
	s.Helper()
	switch command {
	case "service":
		s.spec = cluster.Service{
			Cluster: "c", Name: "web", Count: s.number(words, "count"), Stopped: has(words, "stopped"),
			Scaling: &cluster.Scaling{
				Min: s.number(words, "min"), Max: s.number(words, "max"),
				Suspended: has(words, "suspended"),
			},
		}
		s.spec.Updated, s.fired = s.now, nil
	case "count":
		s.spec.Count, s.spec.Updated = s.atoi(words[0]), s.now
	case "target":
		metric, value, _ := strings.Cut(words[0], "=")
		s.spec.Scaling.Targets = append(s.spec.Scaling.Targets, cluster.ScaleTarget{
			Metric: cluster.ScaleMetric(metric), Target: s.float(value), Whole: has(words, "whole"),
		})
	case "up":
		s.spec.Scaling.Up = s.ownPace(words)
	case "down":
		s.spec.Scaling.Down = s.ownPace(words)
	case "schedule":
		s.spec.Scaling.Schedules = append(s.spec.Scaling.Schedules, cluster.ScaleSchedule{
			Cron: fmt.Sprintf("schedule %d", len(s.fired)), Min: s.optional(words, "min"),
			Max:   s.optional(words, "max"),
			Count: s.optional(words, "count"),
		})
		s.fired = append(s.fired, time.Time{})
	case "fire":
		for _, w := range words {
			s.fired[s.atoi(w)] = s.now
		}
	case "obstacle":
		s.obstacle = strings.Join(words, " ")
	case "leader":
		s.estimates = nil
	case "at":
		s.now = epoch().Add(s.span(words[0]))
		fmt.Fprintln(&s.out, s.decide(words[1:]))
	case "every":
		end, last := epoch().Add(s.span(words[2])), ""
		for s.now.Before(end) {
			s.now = s.now.Add(s.span(words[0]))
			line := s.decide(words[3:])
			if _, what, _ := strings.Cut(line, " "); what != last {
				fmt.Fprintln(&s.out, line)
				last = what
			}
		}
	default:
		s.Fatalf("no command %q", command)
	}
}

// decide decides, carries the decision out and returns it as a line.
func (s *stage) decide(values []string) string {
	in := scaler.Input{
		Spec: &s.spec, Scale: s.scale, Estimates: s.estimates, Fired: s.fired, GrowthObstacle: s.obstacle,
		Now: s.now,
	}
	for _, v := range values {
		in.Measured = append(in.Measured, s.measured(v))
	}
	was := s.spec.At(s.scale).Count
	d := scaler.Decide(in)
	if d.Scale != nil {
		s.scale = d.Scale
	}
	if !d.Estimate.At.IsZero() {
		s.estimates = append(s.estimates, d.Estimate)
	}
	line := fmt.Sprintf("%s %d", s.now.Sub(epoch()), was)
	if now := s.spec.At(s.scale).Count; now != was {
		line += fmt.Sprintf(" to %d", now)
	}
	if (d.Event != nil) != (d.Scale != nil && d.Scale.Count != was) {
		s.Errorf("%s: the event is %+v", line, d.Event)
	}
	if d.Message != "" {
		line += ": " + d.Message
	}
	if !d.NextDecision.IsZero() {
		line += fmt.Sprintf("; next at %s", d.NextDecision.Sub(epoch()))
	}
	return line
}

func (s *stage) measured(text string) scaler.Measured {
	if text == "-" {
		return scaler.Measured{}
	}
	parts := strings.Split(text, "/")
	m := scaler.Measured{Value: s.float(parts[0]), Known: true, At: s.now, Tasks: s.spec.At(s.scale).Count}
	if len(parts) > 1 {
		m.Tasks = s.atoi(parts[1])
	}
	if len(parts) > 2 {
		m.At = s.now.Add(-s.span(parts[2]))
	}
	return m
}

func (s *stage) ownPace(words []string) (p cluster.ScalePace) {
	if v := value(words, "window"); v != "" {
		d := cluster.Duration(s.span(v))
		p.Window = &d
	}
	if v := value(words, "step"); v != "" {
		step, err := cluster.ParsePortion(v)
		if err != nil {
			s.Fatal(err)
		}
		p.Step = &step
	}
	if v := value(words, "every"); v != "" {
		p.Every = cluster.Duration(s.span(v))
	}
	return p
}

// value returns the value of a key.
func value(words []string, key string) string {
	for _, w := range words {
		if v, ok := strings.CutPrefix(w, key+"="); ok {
			return v
		}
	}
	return ""
}

func has(words []string, flag string) bool { return slices.Contains(words, flag) }

func (s *stage) number(words []string, key string) int { return s.atoi(value(words, key)) }

func (s *stage) optional(words []string, key string) *int {
	v := value(words, key)
	if v == "" {
		return nil
	}
	n := s.atoi(v)
	return &n
}

func (s *stage) atoi(text string) int {
	s.Helper()
	n, err := strconv.Atoi(text)
	if err != nil {
		s.Fatal(err)
	}
	return n
}

func (s *stage) float(text string) float64 {
	s.Helper()
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		s.Fatal(err)
	}
	return f
}

func (s *stage) span(text string) time.Duration {
	s.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		s.Fatal(err)
	}
	return d
}

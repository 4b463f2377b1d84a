package fake_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/discovery"
	"github.com/berthd/berth/internal/discovery/discoverytest"
	"github.com/berthd/berth/internal/discovery/fake"
	"github.com/berthd/berth/internal/suite/suitetest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	suitetest.Run(t, discoverytest.Cases(), func(*testing.T) discoverytest.Subject {
		s := &fake.System{}
		return discoverytest.Subject{
			Driver: fake.New(s, "one"), Other: fake.New(s, "two"),
			See: func(_ context.Context, service string) (seen []discoverytest.Seen, err error) {
				for id, e := range s.Entries() { // order-free: sorted below
					if r := e.Registration; r.Name == service {
						seen = append(seen, discoverytest.Seen{
							ID: id, Name: r.Name, Address: r.Address, Port: r.Port, Tags: r.Tags, Meta: r.Meta,
							Health: e.State.Health, Text: e.State.Text,
						})
					}
				}
				slices.SortFunc(seen, func(a, b discoverytest.Seen) int { return strings.Compare(a.ID, b.ID) })
				return seen, nil
			},
			Restart: func() {}, Lose: s.Lose,
			Tamper: func(_ context.Context, id string) error {
				e := s.Entries()[id]
				e.Registration.Tags = []string{"other"}
				s.Put(e)
				return nil
			},
		}
	})
}

// TestFaults checks that each kind of fault has the effect that a test expects of it.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := &fake.System{}
	d := fake.New(s, "one")
	r := &discovery.Registration{ID: "x"}
	s.Fail()
	if err := d.Register(t.Context(), r, discovery.State{}); !errors.Is(err, fake.ErrDown) || len(s.Entries()) != 0 {
		t.Errorf("a refused call: got error %v and %v", err, s.Entries())
	}
	s.Recover()
	lost := errors.New("lost")
	s.After(func(string) error { return lost })
	if err := d.Register(t.Context(), r, discovery.State{}); !errors.Is(err, lost) || len(s.Entries()) != 1 {
		t.Errorf("a lost answer: got error %v and %v, want the effect", err, s.Entries())
	}
	s.Recover()
	s.Hang()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Deregister(ended, "x"); !errors.Is(err, context.Canceled) || len(s.Entries()) != 1 {
		t.Errorf("a call that hangs: got error %v and %v", err, s.Entries())
	}
}

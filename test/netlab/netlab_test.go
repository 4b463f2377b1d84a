package netlab_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/netlab"
)

// echo serves a port of the host until the test ends, and returns all bytes that it receives.
func echo(t *testing.T, h *netlab.Host, address string) {
	t.Helper()
	l, err := h.Listen(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				_, _ = io.Copy(c, c) // until either side is cut
			}()
		}
	}()
}

// ask sends a line and returns the time until its answer.
func ask(from *netlab.Host, address string, limit time.Duration) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	began := time.Now()
	c, err := from.Dial(ctx, "tcp4", address)
	if err != nil {
		return 0, err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(began.Add(limit)) // a TCP connection has deadlines
	if _, err := io.WriteString(c, "hello\n"); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(c, make([]byte, 6))
	return time.Since(began), err
}

func TestHostsReachEachOtherUntilTheyAreCut(t *testing.T) {
	lab := netlab.New(t)
	a, b, c := lab.Add("a"), lab.Add("b"), lab.Add("c")
	address := net.JoinHostPort(b.Address, "700")
	echo(t, b, address)
	reach := func(from *netlab.Host) bool {
		_, err := ask(from, address, 300*time.Millisecond)
		return err == nil
	}
	for _, step := range []struct {
		name         string
		do           func()
		fromA, fromC bool
	}{
		{"at first", func() {}, true, true},
		{"a to b is cut", func() { lab.Cut(a, b) }, false, true},
		{"healed", func() { lab.Heal() }, true, true},
		{"only answers are cut", func() { lab.Cut(b, a) }, false, true},
		{"b is alone", func() { lab.Isolate(b) }, false, false},
		{"healed again", func() { lab.Heal() }, true, true},
	} {
		step.do()
		if got := [2]bool{reach(a), reach(c)}; got != [2]bool{step.fromA, step.fromC} {
			t.Errorf("%s: a and c reach b: got %v, want %v", step.name, got, [2]bool{step.fromA, step.fromC})
		}
	}
}

func TestSlowLinks(t *testing.T) {
	lab := netlab.New(t)
	a, b := lab.Add("a"), lab.Add("b")
	address := net.JoinHostPort(b.Address, "700")
	echo(t, b, address)
	first := func() time.Duration {
		t.Helper()
		took, err := ask(a, address, testkit.Scaled(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		return took
	}
	quick := func(when string) { // a busy machine may hold up some of the answers, the link none
		t.Helper()
		testkit.Eventually(t, time.Minute, func() error {
			if took := first(); took > 150*time.Millisecond {
				return fmt.Errorf("there and back %s: %v", when, took)
			}
			return nil
		})
	}
	quick("at first")
	b.Slow(700, 150*time.Millisecond)
	if took := first(); took < 300*time.Millisecond {
		t.Errorf("there and back with 150 ms each way: %v", took)
	}
	b.Slow(700, 0)
	quick("without delay")
}

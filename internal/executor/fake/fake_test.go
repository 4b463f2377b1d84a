package fake_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/executor/fake"
	"github.com/berthd/berth/internal/suite"
	"github.com/berthd/berth/internal/suite/suitetest"
)

func TestContract(t *testing.T) {
	suitetest.Run(t, executortest.Cases(), func(t *testing.T) executortest.Machine { return machine(t) })
}

// machine returns a machine whose executors change by each of the functions.
func machine(t suite.T, change ...func(executor.Executor) executor.Executor) executortest.Machine {
	m := fake.NewMachine()
	var life *fake.Executor
	return executortest.Machine{
		New: func() executor.Executor {
			if life != nil {
				life.Die()
			}
			life = fake.New(m)
			var ex executor.Executor = life
			for _, c := range change {
				ex = c(ex)
			}
			return ex
		},
		Container: func(p executortest.Program) cluster.Container {
			words := []string{"run"}
			if !p.Forever {
				words = []string{"exit", fmt.Sprint(p.Exit), "after", p.After.String()}
			}
			if p.Stdout != "" {
				words = append(words, "print", p.Stdout)
			}
			if p.Stderr != "" {
				words = append(words, "eprint", p.Stderr)
			}
			if p.OnTerm != 0 {
				words = append(words, "term", fmt.Sprint(p.OnTerm))
			}
			if p.IgnoreTerm {
				words = append(words, "ignore-term")
			}
			return cluster.Container{Name: "main", Command: words}
		},
		Orphan: func(id executor.ID) {
			if err := m.End(id, cluster.Exit{Code: -1, Unknown: true}); err != nil {
				t.Fatalf("orphan %s: %v", id, err)
			}
		},
	}
}

// optimist is an executor with a planted bug: it reports unknown exits as successes.
type optimist struct{ executor.Executor }

func (o optimist) Wait(ctx context.Context, id executor.ID) (cluster.Exit, error) {
	exit, err := o.Executor.Wait(ctx, id)
	if exit.Unknown {
		exit.Unknown, exit.Code = false, 0
	}
	return exit, err
}

// TestContractInPrograms runs the suite as a program does, on an executor without and with a fault.
func TestContractInPrograms(t *testing.T) {
	broken := func(ex executor.Executor) executor.Executor { return optimist{ex} }
	for name, tc := range map[string]struct {
		change []func(executor.Executor) executor.Executor
		want   []string // the failed cases
	}{
		"sound":                 {nil, nil},
		"unknown exits succeed": {[]func(executor.Executor) executor.Executor{broken}, []string{"unknown exit"}},
	} {
		t.Run(name, func(t *testing.T) {
			open := func(t suite.T) executortest.Machine { return machine(t, tc.change...) }
			var failed []string
			for result := range suite.Run(t.Context(), executortest.Cases(), open) {
				if result.Outcome != suite.Passed {
					failed = append(failed, result.Name)
					t.Logf("%s %s after %v: %q", result.Name, result.Outcome, result.Duration, result.Messages)
				}
			}
			if diff := cmp.Diff(tc.want, failed); diff != "" {
				t.Errorf("failed cases (-want +got):\n%s", diff)
			}
		})
	}
}

func spec(id executor.ID, labels map[string]string, command ...string) executor.Spec {
	return executor.Spec{ID: id, Labels: labels, Container: cluster.Container{Command: command}}
}

func TestTroubleByLabels(t *testing.T) {
	for name, tc := range map[string]struct {
		labels  map[string]string
		command []string
		want    func(t *testing.T, m *fake.Machine, ex *fake.Executor)
	}{
		"lost reply of a start": {
			map[string]string{"fake.start": "lose once"},
			nil,
			func(t *testing.T, m *fake.Machine, ex *fake.Executor) {
				if _, err := ex.Start(t.Context(), "a"); !errors.Is(err, executor.ErrUnavailable) {
					t.Errorf("the reply was not lost: %v", err)
				}
				if _, err := ex.Start(t.Context(), "a"); !errors.Is(err, executor.ErrStarted) {
					t.Errorf("started again: %v", err)
				}
				if n := len(m.History()); n != 1 {
					t.Errorf("ran %d times", n)
				}
			},
		},
		"repeated start": {
			map[string]string{"fake.start": "twice"},
			nil,
			func(t *testing.T, m *fake.Machine, ex *fake.Executor) {
				if _, err := ex.Start(t.Context(), "a"); !errors.Is(err, executor.ErrStarted) {
					t.Errorf("started twice: %v", err)
				}
			},
		},
		"dies after success": {
			map[string]string{"fake.start": "dies"},
			nil,
			func(t *testing.T, m *fake.Machine, ex *fake.Executor) {
				_, err := ex.Start(t.Context(), "a")
				exit, err2 := ex.Wait(t.Context(), "a")
				if err != nil || err2 != nil || exit.Signal != 11 {
					t.Errorf("%v %v %+v", err, err2, exit)
				}
			},
		},
		"hangs": {map[string]string{"fake.start": "hang"}, nil, func(t *testing.T, m *fake.Machine, ex *fake.Executor) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			if _, err := ex.Start(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %v", err)
			}
			if n := len(m.History()); n != 0 {
				t.Errorf("ran %d times", n)
			}
		}},
		"wrong exit": {
			map[string]string{"fake.wait": "unknown"},
			[]string{"exit", "0"},
			func(t *testing.T, m *fake.Machine, ex *fake.Executor) {
				_, err := ex.Start(t.Context(), "a")
				exit, err2 := ex.Wait(t.Context(), "a")
				if err != nil || err2 != nil || !exit.Unknown {
					t.Errorf("%v %v %+v", err, err2, exit)
				}
			},
		},
		"late end of a long program": {
			map[string]string{"fake.wait": "late 5s"},
			[]string{"exit", "2", "after", "1h"},
			func(t *testing.T, m *fake.Machine, ex *fake.Executor) {
				begin := time.Now()
				_, err := ex.Start(t.Context(), "a")
				exit, err2 := ex.Wait(t.Context(), "a")
				if took := time.Since(begin); err != nil || err2 != nil || exit.Code != 2 ||
					took != time.Hour+5*time.Second {
					t.Errorf("%v %v %+v after %v", err, err2, exit, took)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := fake.NewMachine()
				ex := fake.New(m)
				if err := ex.Prepare(t.Context(), spec("a", tc.labels, tc.command...), nil); err != nil {
					t.Fatal(err)
				}
				tc.want(t, m, ex)
				if err := ex.Remove(t.Context(), "a"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestTroubleByCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fake.NewMachine()
		broken := errors.New("broken")
		m.SetTrouble(func(c fake.Call) fake.Fault {
			if c.Op == fake.OpPrepare && c.ID == "a" && c.Nth == 1 {
				return fake.Fault{Delay: time.Minute, Err: broken}
			}
			return fake.Fault{}
		})
		ex := fake.New(m)
		begin := time.Now()
		if err := ex.Prepare(t.Context(), spec("a", nil), nil); !errors.Is(err, broken) ||
			time.Since(begin) != time.Minute {
			t.Errorf("first prepare: %v after %v", err, time.Since(begin))
		}
		if err := ex.Prepare(t.Context(), spec("a", nil), nil); err != nil {
			t.Errorf("second prepare: %v", err)
		}
		if err := ex.Prepare(t.Context(), spec("b", nil, "prepare-fail", "no image"), nil); err == nil ||
			err.Error() != "no image" {
			t.Errorf("a program that cannot be prepared: %v", err)
		}
		if err := ex.Prepare(t.Context(), spec("c", nil, "fly"), nil); !errors.Is(err, executor.ErrUnsupported) {
			t.Errorf("an unknown argument: %v", err)
		}
		if _, err := ex.Start(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { _, err := ex.Wait(t.Context(), "a"); ended <- err }()
		synctest.Wait()
		ex.Die()
		if err := <-ended; !errors.Is(err, executor.ErrUnavailable) {
			t.Errorf("a wait of a dead agent returns %v", err)
		}
		m.Reboot()
		exit, err := fake.New(m).Wait(t.Context(), "a")
		if err != nil || !exit.Unknown {
			t.Errorf("after a reboot: %+v %v", exit, err)
		}
	})
}

func FuzzProgram(f *testing.F) {
	f.Add("exit", "3", "after", "2s")
	f.Add("print", "x", "term", "")
	f.Add("prepare-delay", "1x", "oom", "unknown")
	f.Fuzz(func(t *testing.T, a, b, c, d string) {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			defer cancel()
			ex := fake.New(fake.NewMachine())
			if err := ex.Prepare(ctx, spec("a", nil, a, b, c, d), nil); err != nil {
				return
			}
			if _, err := ex.Start(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			if err := ex.Remove(ctx, "a"); err != nil {
				t.Fatal(err)
			}
		})
	})
}

// TestProgramIsChosenAtTheStart chooses programs by the labels of a run, and leaves others alone.
func TestProgramIsChosenAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fake.NewMachine()
		m.SetProgram(func(r fake.Run) []string {
			switch r.Labels["attempt"] {
			case "1":
				return []string{"exit", "75", "after", "3s"}
			case "2":
				return []string{"juggle"}
			}
			return nil
		})
		ex := fake.New(m)
		for attempt, want := range map[string]int{"1": 75, "3": 4} {
			id, began, labels := executor.ID("a"+attempt), time.Now(), map[string]string{"attempt": attempt}
			if err := ex.Prepare(t.Context(), spec(id, labels, "exit", "4"), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := ex.Start(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			exit, err := ex.Wait(t.Context(), id)
			if err != nil || exit.Code != want || attempt == "1" && time.Since(began) != 3*time.Second {
				t.Errorf("attempt %s: got exit %+v after %v (%v), want code %d", attempt, exit, time.Since(began), err,
					want)
			}
		}
		if err := ex.Prepare(t.Context(), spec("b", map[string]string{"attempt": "2"}, "exit", "4"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := ex.Start(t.Context(), "b"); !errors.Is(err, executor.ErrUnsupported) {
			t.Errorf("a program that cannot be read: got error %v", err)
		}
	})
}

// TestObserverGetsStartsAndEnds runs one program.
func TestObserverGetsStartsAndEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := fake.NewMachine()
		var ran []bool
		m.SetObserver(func(r fake.Run) { ran = append(ran, r.Ended.IsZero()) })
		ex := fake.New(m)
		if err := ex.Prepare(t.Context(), spec("a", nil, "exit", "0", "after", "1s"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := ex.Start(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if _, err := ex.Wait(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		if len(ran) != 2 || !ran[0] || ran[1] {
			t.Errorf("got %v, want a start and an end", ran)
		}
	})
}

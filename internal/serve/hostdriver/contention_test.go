package hostdriver_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
)

// TestConcurrentChangesOfOneName lets many clients create, replace, start, stop and delete two names at a time. Each
// change gets an answer of the API, the records stay those of tasks, and afterwards the names can be used.
func TestConcurrentChangesOfOneName(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	run(t, d)
	ctx, cancel := context.WithCancel(testkit.Context(t, 60*time.Second))
	defer cancel()
	var controlPlane sync.WaitGroup
	controlPlane.Go(func() { // removes what was deleted
		for ctx.Err() == nil {
			f.mu.Lock()
			changed := f.changed
			f.mu.Unlock()
			for _, name := range []string{"web", "web2"} {
				if svc := f.service(name); svc != nil && svc.Deleted {
					f.drop(name)
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	})
	var made atomic.Int64
	var clients sync.WaitGroup
	for seed := range uint64(8) {
		clients.Go(func() {
			dice := rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				name, other := "web", "web2"
				if dice.IntN(2) == 0 {
					name, other = other, name
				}
				var err error
				var created bool
				switch dice.IntN(5) {
				case 0:
					created, err = d.Create(ctx, creation(name, fmt.Sprint(dice.IntN(2)), ""))
				case 1:
					created, err = d.Create(ctx, creation(name, "x", other))
				case 2:
					err = d.Start(ctx, name)
				case 3:
					err = d.Stop(ctx, name)
				case 4:
					err = d.Delete(ctx, name)
				}
				if created {
					made.Add(1)
				}
				if got := statusOf(err); got != 200 && got != 404 && got != 409 {
					t.Errorf("%s got %d: %v", name, got, err)
				}
			}
		})
	}
	clients.Wait()
	if made.Load() < 2 {
		t.Errorf("%d tasks were made, so nothing was tried", made.Load())
	}
	for _, name := range []string{"web", "web2"} {
		if svc := f.service(name); svc != nil && svc.Labels["host-api/replaces"] == name {
			t.Errorf("%s replaces itself", name)
		}
	}
	for _, name := range []string{"web", "web2"} {
		testkit.Eventually(t, 20*time.Second, func() error {
			_ = d.Stop(ctx, name) // it may be stopped
			if err := d.Delete(ctx, name); statusOf(err) != http.StatusOK && statusOf(err) != http.StatusNotFound {
				return err
			}
			created, err := d.Create(ctx, creation(name, "last", ""))
			if err == nil && !created {
				return fmt.Errorf("%s is still there", name)
			}
			return err
		})
	}
	cancel()
	controlPlane.Wait()
}

// TestADeletionHoldsNothingUp checks that others make their changes while a deletion waits for the end of its task, and
// that the deletion does not ask the server again and again.
func TestADeletionHoldsNothingUp(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	run(t, d)
	ctx := testkit.Context(t, 30*time.Second)
	for _, name := range []string{"web", "other"} {
		if _, err := d.Create(ctx, creation(name, "x", "")); err != nil {
			t.Fatal(err)
		}
	}
	deleted := make(chan error, 1)
	go func() { deleted <- d.Delete(ctx, "web") }()
	await(t, "it is being deleted", func() bool { return states(d)["web"] == "stopping" })
	before := f.lists.Load()
	for range 20 {
		if err := d.Start(ctx, "other"); err != nil {
			t.Fatal(err)
		}
		if err := d.Stop(ctx, "other"); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-deleted:
		t.Fatalf("the deletion ended before its task did, and before 40 other changes: %v", err)
	default:
	}
	// Each change is one list for its caller, one for Run and one for the deletion.
	if got := f.lists.Load() - before; got > 40*3+10 {
		t.Errorf("40 changes during a deletion took %d lists of services", got)
	}
	f.drop("web")
	if err := <-deleted; err != nil {
		t.Error(err)
	}
}

// TestAChangeWaitsNoLongerThanItsCaller checks that a change behind one that hangs ends with its caller, and makes
// nothing afterwards.
func TestAChangeWaitsNoLongerThanItsCaller(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	ctx, cancel := context.WithCancel(testkit.Context(t, 30*time.Second))
	defer cancel()
	begun, release := make(chan struct{}), make(chan struct{})
	f.refuse = func(_, name string) *respond.Problem {
		if name == "slow" {
			close(begun)
			<-release
		}
		return nil
	}
	slow := make(chan error, 1)
	go func() {
		_, err := d.Create(ctx, creation("slow", "x", ""))
		slow <- err
	}()
	<-begun
	impatient, leave := context.WithCancel(ctx)
	leave()
	_, err := d.Create(impatient, creation("web", "x", ""))
	if got := statusOf(err); got != http.StatusServiceUnavailable || !strings.Contains(err.Error(), "was not begun") {
		t.Errorf("the change behind it: %d %v, want 503", got, err)
	}
	close(release)
	if err := <-slow; err != nil {
		t.Error(err)
	}
	if f.service("web") != nil {
		t.Error("the change was made although its caller had left")
	}
}

// TestTasksAreBounded checks that a client which makes new names again and again is refused at a limit.
func TestTasksAreBounded(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	ctx := testkit.Context(t, 60*time.Second)
	if _, err := d.Create(ctx, creation("web", "x", "")); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	labels := f.services["web"].Labels
	for i := range 999 {
		f.set(&api.ServiceView{Service: cluster.Service{
			Cluster: "default", Name: fmt.Sprintf("t%d", i), Labels: labels, Stopped: true,
			Definition: cluster.Ref{Name: "web", Version: 1},
		}})
	}
	f.mu.Unlock()
	if err := d.Start(ctx, "web"); err != nil { // it sees them
		t.Fatal(err)
	}
	_, err := d.Create(ctx, creation("more", "x", ""))
	if got := statusOf(err); got != http.StatusConflict || !strings.Contains(err.Error(), "delete the ones") {
		t.Errorf("task 1001: %d %v, want 409", got, err)
	}
	if created, err := d.Create(ctx, creation("web", "x", "")); err != nil || created {
		t.Errorf("a repeated creation at the limit: %v, %v", created, err)
	}
}

// TestAnOlderListIsDropped checks that a list which was read before a change does not hide the change again.
func TestAnOlderListIsDropped(t *testing.T) {
	f := newServer(t)
	d := f.driver(t, time.Unix(1000, 0))
	ctx := testkit.Context(t, 30*time.Second)
	f.mu.Lock()
	f.set(&api.ServiceView{Service: cluster.Service{
		Cluster: "default", Name: "first", Labels: cluster.Labels{"host-api/node": "n1"}, Stopped: true,
		Definition: cluster.Ref{Name: "held", Version: 1},
	}})
	f.mu.Unlock()
	reading, release := make(chan struct{}), make(chan struct{})
	again, goOn := make(chan struct{}), make(chan struct{})
	var held, asked atomic.Bool
	f.onDefinition = func(name string) {
		if name == "held" && held.CompareAndSwap(false, true) {
			close(reading)
			<-release
		}
	}
	run(t, d)
	<-reading // Run has the list with the first task only
	if _, err := d.Create(ctx, creation("web", "x", "")); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	f.onList = func() {
		if asked.CompareAndSwap(false, true) {
			close(again)
			<-goOn
		}
	}
	f.mu.Unlock()
	close(release)
	<-again // Run has taken its list, and asks for the next one
	if got := states(d); got["web"] != "created" || got["first"] == "" {
		t.Errorf("the driver knows %v, want the tasks first and web", got)
	}
	close(goOn)
}

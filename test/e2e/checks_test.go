package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// checkedImage is the image of test/e2e/checked.
const checkedImage = "berth.local/checked:1"

// wordTTL is the ttl of the check of service worker.
const wordTTL = 3 * time.Second

// checkedServices are services of one task each, whose checks a test plays. %s is how their container is run. Without
// its startup check the task of slow would be restarted by its liveness check before it listens.
const checkedServices = `
kind: TaskDefinition
name: cart
version: 1
containers: [{name: main, %[1]s}]
ports: [{name: http}, {name: grpc}, {name: secure}]
checks:
  - {name: cart, type: grpc, port: grpc, service: shop.Cart, interval: scaled(1s), timeout: scaled(1s), fail_after: 1}
  - {name: secure, type: grpc, port: secure, tls: true, interval: scaled(1s), timeout: scaled(1s)}
---
kind: TaskDefinition
name: hung
version: 1
containers: [{name: main, %[1]s}]
ports: [{name: http}]
checks:
  - {name: alive, type: http, path: /alive, meaning: liveness, interval: scaled(1s), timeout: scaled(1s), fail_after: 2}
  - {name: ready, type: http, path: /ready, interval: scaled(1s), timeout: scaled(1s)}
grace: 500ms
---
kind: TaskDefinition
name: slow
version: 1
containers: [{name: main, env: {START_AFTER: 5s}, %[1]s}]
ports: [{name: http}]
checks:
  - {name: started, type: tcp, meaning: startup, interval: scaled(1s), timeout: scaled(1s), fail_after: 60}
  - {name: alive, type: http, path: /alive, meaning: liveness, interval: scaled(1s), timeout: scaled(1s), fail_after: 4}
---
kind: TaskDefinition
name: worker
version: 1
containers: [{name: main, %[1]s}]
checks:
  - {name: beat, type: ttl, ttl: scaled(3s)}
---
{kind: Service, name: cart, definition: cart@1, count: 1}
---
{kind: Service, name: hung, definition: hung@1, count: 1}
---
{kind: Service, name: slow, definition: slow@1, count: 1}
---
{kind: Service, name: worker, definition: worker@1, count: 1}
`

// checkedSite is a site on which those services run.
type checkedSite struct {
	*harness.Site
	t      *testing.T
	client *client.Client
}

func newCheckedSite(t *testing.T, executor string) *checkedSite {
	s := &checkedSite{Site: harness.New(t, executor), t: t}
	program := harness.Program(t, s.Dir, "./test/e2e/checked")
	s.Server()
	run := "command: [" + program + "]"
	if executor == harness.Containerd {
		run = "image: " + checkedImage
	}
	s.client = s.Client()
	return s.begin(program, run+", resources: {cpu: 10m, memory: 64MiB}")
}

func (s *checkedSite) begin(program, run string) *checkedSite {
	s.t.Helper()
	s.Agent()
	if s.Executor == harness.Containerd {
		s.Berth("image", "load", harness.ProgramImage(s.t, s.Dir, checkedImage, program)).Want(s.t, 0)
	}
	s.Berth("run", "--detach", s.Write("checked.yaml", fmt.Sprintf(checkedServices, run))).Want(s.t, 0)
	return s
}

// task returns the task of a service.
func (s *checkedSite) task(service string) (api.TaskView, error) {
	tasks := alive(s.Site, service)
	if len(tasks) != 1 {
		return api.TaskView{}, fmt.Errorf("%s has %d tasks", service, len(tasks))
	}
	return tasks[0], nil
}

// becomes waits until the task of a service has the health, with a message.
func (s *checkedSite) becomes(service string, health cluster.Health, message string) (v api.TaskView) {
	s.t.Helper()
	s.Eventually(soon, func() (err error) {
		if v, err = s.task(service); err != nil {
			return err
		}
		if v.Health != health || !strings.Contains(v.Message, message) {
			return fmt.Errorf("%s is %s and %s: %q; want %s: %q", v.ID, v.State, v.Health, v.Message, health, message)
		}
		return nil
	})
	return v
}

// sendCommand posts to a path of a task's program.
func (s *checkedSite) sendCommand(v api.TaskView, path string) {
	s.t.Helper()
	ctx, cancel := testkit.WithLimit(s.t.Context(), soon)
	defer cancel()
	address := "http://" + net.JoinHostPort(v.Address, strconv.Itoa(v.Ports["http"])) + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("POST %s: %s", address, resp.Status)
	}
}

// beats sends pass to the check of service worker until it is stopped, and records the times at which the task was not
// healthy.
func (s *checkedSite) beats(id cluster.TaskID) (end func() error) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var all sync.WaitGroup
	var found error
	all.Go(func() {
		last, proves := time.Now(), time.Time{}
		beat := time.NewTicker(wordTTL / 12)
		defer beat.Stop()
		for range beat.C {
			if ctx.Err() != nil {
				return
			}
			err := s.client.UpdateCheck(ctx, id, 1, "beat", api.CheckWord{Word: cluster.TTLPass})
			now := time.Now()
			if now.Sub(last) > wordTTL*2/3 {
				proves = now.Add(wordTTL) // the machine stood still: results of this time prove nothing
			}
			if err == nil {
				last = now
			}
			v, seen := s.client.Task(ctx, id)
			if ctx.Err() != nil {
				return
			}
			switch {
			case err != nil && client.StatusOf(err) == 0:
				found = errors.Join(found, err)
			case now.After(proves) && seen == nil && v.Health != cluster.HealthHealthy && v.Message != "":
				found = errors.Join(found, fmt.Errorf("it is %s while it is kept alive: %s", v.Health, v.Message))
			}
		}
	})
	return func() error {
		cancel()
		all.Wait()
		return found
	}
}

// TestChecks runs checks of each type and meaning that a program, or a user, can fail.
func TestChecks(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := newCheckedSite(t, executor)
		worker := s.becomes("worker", cluster.HealthUnknown, "")
		s.Eventually(soon, func() error { // it may not run yet
			if r := s.Berth("check", "pass", string(worker.ID), "beat", "--attempt", "1"); r.Code != 0 {
				return errors.New(r.Stderr)
			}
			return nil
		})
		s.becomes("worker", cluster.HealthHealthy, "")
		end := s.beats(worker.ID)

		const starts = "waiting for startup check started: "
		slow := s.becomes("slow", cluster.HealthUnknown, starts)
		s.Berth("explain", string(slow.ID)).Want(t, 0, "is not healthy yet", starts)

		hung := s.becomes("hung", cluster.HealthHealthy, "")
		s.sendCommand(hung, "/hang")
		cart := s.becomes("cart", cluster.HealthHealthy, "")
		s.sendCommand(cart, "/refusing/shop.Cart")
		const refuses = `readiness check cart: service "shop.Cart" answered NOT_SERVING`
		s.becomes("cart", cluster.HealthFailing, refuses)
		s.Berth("explain", "cart").Want(t, 0, refuses)
		s.Berth("status", "service/cart").Want(t, 0, refuses)
		s.sendCommand(cart, "/serving/shop.Cart")
		if v := s.becomes("cart", cluster.HealthHealthy, ""); v.Restarts != 0 || v.UUID != cart.UUID {
			t.Errorf("a readiness check restarted %s", v.ID)
		}

		if v := s.becomes("slow", cluster.HealthHealthy, ""); v.Restarts != 0 || v.UUID != slow.UUID {
			t.Errorf("%s was restarted %d times in its slow start, and is at attempt %d, before at %d:\n%v", v.ID,
				v.Restarts, v.Attempt, slow.Attempt,
				s.Berth("events", "--tail", "-1", "--task", string(v.ID)))
		}
		s.Eventually(soon, func() error {
			v, err := s.task("hung")
			if err == nil && (v.Restarts < 1 || v.Health != cluster.HealthHealthy || v.UUID != hung.UUID) {
				err = fmt.Errorf("%s was restarted %d times, is at attempt %d and %s: %s", v.ID, v.Restarts, v.Attempt,
					v.Health, v.Message)
			}
			return err
		})
		s.Berth("events", "--tail", "-1", "--type", "task.restarted").Want(t, 0,
			"liveness check alive failed 2 times in a row: no answer within ")

		if err := end(); err != nil {
			t.Error(err)
		}
		s.becomes("worker", cluster.HealthFailing, "readiness check beat: no update for ")
		s.Berth("check", "fail", string(worker.ID), "beat", "--message", "the queue is stuck").Want(t, 0)
		s.Berth("check", "pass", string(worker.ID), "beat").Want(t, 0)
		if v := s.becomes("worker", cluster.HealthHealthy, ""); v.Restarts != 0 {
			t.Errorf("%s was restarted %d times", v.ID, v.Restarts)
		}
		s.Berth("check", "pass", string(worker.ID), "bite").Want(t, 2, "of type ttl it has beat")
		s.Berth("check", "pass", string(cart.ID), "cart").Want(t, 2, "is of type grpc")
	})
}

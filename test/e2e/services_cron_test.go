package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// each is a cron: name, schedule, policies, command.
const each = `
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    command: [sh, -c, '%[4]s']
    resources: {cpu: 1m, memory: 16MiB}
grace: 100ms
---
kind: Cron
name: %[1]s
schedules: ["%[2]s"]
%[3]s
job:
  steps: [{name: all, definition: %[1]s@1}]
`

// TestCronFires waits for a moment, with jobs of earlier ones still running.
func TestCronFires(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Server()
	s.Agent()
	for time.Now().Second() > 50 { // a moment must not come before all is there
		testkit.Pause(t.Context(), 100*time.Millisecond)
	}
	policies := []string{"forbid", "allow", "replace"}
	for _, policy := range policies {
		s.Berth("run", s.Write(policy+".yaml",
			fmt.Sprintf(each, policy, "* * * * *", "concurrency: "+policy, "sleep 1000"))).Want(t, 0)
		s.Berth("cron", "run", policy, "--detach").Want(t, 0)
	}
	s.Berth("run", s.Write("plain.yaml", fmt.Sprintf(each, "plain", "* * * * *", `zone: Europe/Paris`, "true"))).Want(t,
		0)
	before := map[string][]string{}
	for _, policy := range policies {
		before[policy] = jobsOf(t, s, policy)
		if len(before[policy]) != 1 {
			t.Fatalf("%s has the jobs %v before its moment, want one", policy, before[policy])
		}
	}
	moment := time.Now().Truncate(time.Minute).Add(time.Minute)
	s.Berth("cron", "ls").Want(t, 0, "plain", "forbid", "Europe/Paris")
	s.Berth("cron", "status", "plain").Want(t, 0, "plain")

	// At the moment the plain one makes its job, which succeeds.
	name := "plain-" + moment.UTC().Format("200601021504")
	s.Eventually(90*time.Second, func() error {
		j, err := s.Client().Job(t.Context(), cluster.DefaultCluster, name)
		if err == nil && !j.Status.Done() {
			err = fmt.Errorf("%+v", j.Status)
		}
		return err
	})
	t.Logf("the job of %v had succeeded %v later", moment.Format(time.TimeOnly),
		time.Since(moment).Round(time.Millisecond))

	// The others follow their policies.
	s.Eventually(soon, func() error {
		for policy, want := range map[string]int{"forbid": 1, "allow": 2, "replace": 1} {
			live := runningJobs(t, s, policy)
			if len(live) != want {
				return fmt.Errorf("%s has %v running, want %d", policy, live, want)
			}
			if kept := slices.Contains(live, before[policy][0]); kept != (policy != "replace") {
				return fmt.Errorf("%s: of %v runs %v", policy, before[policy], live)
			}
		}
		return nil
	})
	s.Berth("cron", "suspend", "plain").Want(t, 0, "is suspended")
	s.Berth("cron", "history", "plain").Want(t, 0, "succeeded")
	s.Berth("events", "--tail", "-1").Want(t, 0, "cron.fired")
	for _, policy := range append(policies, "plain") {
		s.Berth("delete", "cron/"+policy).Want(t, 0)
	}
}

// jobsOf are the names of a cron's jobs.
func jobsOf(t *testing.T, s *harness.Site, cron string) (names []string) {
	t.Helper()
	page, err := s.Client().Jobs(t.Context(), cluster.DefaultCluster, client.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range page.Items {
		if j.Cron == cron {
			names = append(names, j.Name)
		}
	}
	return names
}

// runningJobs returns the jobs that have not ended.
func runningJobs(t *testing.T, s *harness.Site, cron string) (names []string) {
	t.Helper()
	for _, name := range jobsOf(t, s, cron) {
		j, err := s.Client().Job(t.Context(), cluster.DefaultCluster, name)
		if err == nil && !j.Status.Done() {
			names = append(names, name)
		}
	}
	return names
}

// TestCronMissedItsMoments simulates an absence of all servers for three hours: it sets the last moment in the store to
// that time.
func TestCronMissedItsMoments(t *testing.T) {
	t.Parallel()
	store := startEtcd(t)
	s := harness.New(t, harness.Process)
	start := func() *harness.Daemon { return s.Server("--store", store) }
	server := start()
	s.Agent()
	policies := map[string]int{"once": 1, "all": 3, "skip": 0}
	minute := time.Now().Add(30 * time.Minute).Minute() // no moment comes while the test runs
	for policy := range policies {
		s.Berth("run", s.Write(policy+".yaml",
			fmt.Sprintf(each, policy, fmt.Sprintf("%d * * * *", minute),
				"missed: "+policy+"\nwithin: 4h\nconcurrency: allow\nkeep_succeeded: 9", "true"))).Want(t, 0)
	}
	for policy := range policies { // from which write on its moments count
		s.Eventually(soon, func() error { return written(t, store, "fired/default/"+policy) })
	}
	server.Kill()
	for policy := range policies {
		setBack(t, store, "cron/default/"+policy, "created", 5*time.Hour)
		setBack(t, store, "fired/default/"+policy, "last", 3*time.Hour)
	}
	server = start()
	s.Eventually(soon, func() error {
		for policy, want := range policies {
			if got := jobsOf(t, s, policy); len(got) != want {
				return fmt.Errorf("%s made the jobs %v, want %d", policy, got, want)
			}
		}
		return nil
	})
	for _, event := range []string{"cron.missed", "cron.skipped"} { // crons are independent
		s.Prints(event, "events", "--tail", "-1")
	}
	// A handled moment is not evaluated again.
	server.Kill()
	start()
	s.Eventually(soon, func() error {
		for policy, want := range policies {
			if got := jobsOf(t, s, policy); len(got) != want {
				t.Errorf("%s made the jobs %v after another restart, want %d", policy, got, want)
			}
		}
		return nil
	})
	s.Eventually(soon, func() error {
		for policy := range policies {
			if live := runningJobs(t, s, policy); len(live) > 0 {
				return fmt.Errorf("%s has %v running", policy, live)
			}
		}
		return nil
	})
	for policy := range policies {
		s.Berth("delete", "cron/"+policy).Want(t, 0)
	}
}

// etcdClient is one of the store that a server was given.
func etcdClient(t *testing.T, store string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints:   []string{strings.Replace(store, "etcd://", "http://", 1)},
		DialTimeout: soon,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() }) // nothing is written any more
	return c
}

// written returns nil once a record is in the store.
func written(t *testing.T, store, name string) error {
	t.Helper()
	c := etcdClient(t, store)
	ctx, cancel := testkit.WithLimit(t.Context(), soon)
	defer cancel()
	found, err := c.Get(ctx, "berth/"+name)
	if err == nil && len(found.Kvs) == 0 {
		err = fmt.Errorf("there is no record %s", name)
	}
	return err
}

// setBack moves a time in a record of the store into the past.
func setBack(t *testing.T, store, name, field string, ago time.Duration) {
	t.Helper()
	c := etcdClient(t, store)
	ctx, cancel := testkit.WithLimit(t.Context(), soon)
	defer cancel()
	key := "berth/" + name
	record := map[string]any{"v": 1}
	found, err := c.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Kvs) > 0 {
		if err := json.Unmarshal(found.Kvs[0].Value, &record); err != nil {
			t.Fatal(err)
		}
	}
	version := record["v"]
	delete(record, "v")
	record[field] = time.Now().Add(-ago).UTC()
	rest, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"v":%v,%s`, version, rest[1:])
	if _, err := c.Put(ctx, key, body); err != nil {
		t.Fatal(err)
	}
}

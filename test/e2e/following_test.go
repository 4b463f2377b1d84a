package e2e_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/test/harness"
)

// followers are three services that use db in different ways: a file and a signal, a variable and a restart, and a file
// that the program polls.
const followers = `
kind: TaskDefinition
name: signalled
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command:
      - sh
      - -c
      - |
        trap 'n=$((n+1)); echo "signal $n: $(cat /etc/berth-client/db.conf)"' HUP
        echo "begun: $(cat /etc/berth-client/db.conf), beside it $(cat /etc/berth-client/fixed)"
        while :; do sleep 0.1; done
    resources: {cpu: 10m, memory: 16MiB}
    files:
      - path: /etc/berth-client/db.conf
        template: true
        on_change: signal
        content: |
          {{len (service "db" "sql")}} of db for {{task.Service}}:{{range service "db" "sql"}} {{.Port}}{{end}}
      - {path: /etc/berth-client/fixed, content: "{{.}}"}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: signalled
definition: signalled
count: 1
---
kind: TaskDefinition
name: restarted
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'IFS=,; set -- $DB; echo "told $# in $URL"; exec sleep 100000']
    env: {URL: "sql://$(DB)/"}
    resources: {cpu: 10m, memory: 16MiB}
    services: [{service: db, port: sql, env: DB}]
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: restarted
definition: restarted
count: 1
---
kind: TaskDefinition
name: left
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'echo begun; trap "echo signalled" HUP; while :; do sleep 0.1; done']
    resources: {cpu: 10m, memory: 16MiB}
    files: [{path: /etc/berth-client/db.conf, mode: "0400", template: true, on_change: noop, content: '{{len (service "db.default" "sql")}} tasks'}]
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: left
definition: left
count: 1
`

// followed is what they use.
const followed = `
kind: TaskDefinition
name: db
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command: [sh, -c, 'exec sleep 100000']
    resources: {cpu: 10m, memory: 16MiB}
ports: [{name: sql}]
min_healthy_time: 100ms
shutdown_delay: 0s
grace: 1s
---
kind: Service
name: db
definition: db
count: 1
`

// Tasks wait, with a reason, for the service that they use. Then they get its addresses and each change in the way of
// their definition. A restarted agent does not repeat them.
func TestFollowingServices(t *testing.T) {
	t.Parallel()
	harness.Either(t, harness.Process, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Server()
		agent := s.Agent()
		s.Berth("run", "--detach", s.Write("followers.yaml", followers)).Want(t, 0)
		const waits = "container main: waiting for services: there is no service db in cluster default"
		for _, name := range []string{"signalled", "restarted", "left"} {
			s.Prints(waits, "status", "service/"+name)
		}
		s.Prints(waits, "explain", "default.signalled.1.0")
		s.Berth("run", s.Write("followed.yaml", followed)).Want(t, 0)
		first := map[string]api.TaskView{}
		for _, name := range []string{"signalled", "restarted", "left"} {
			first[name] = running(t, s, name, 1)[0]
		}
		ports := func(count int) (list string) {
			for _, task := range running(t, s, "db", count) {
				list += fmt.Sprintf(" %d", task.Ports["sql"])
			}
			return list
		}
		s.Prints("begun: 1 of db for signalled:"+ports(1)+", beside it {{.}}", "logs", "service/signalled")
		s.Prints("told 1 in sql://", "logs", "service/restarted")
		exec := func(name, want string) {
			t.Helper()
			s.Prints(want, "exec", string(first[name].ID), "--", "cat", "/etc/berth-client/db.conf")
		}
		exec("left", "1 tasks")

		// 1. A second task of it.
		s.Berth("scale", "--detach", "service/db", "2").Want(t, 0)
		s.Prints("signal 1: 2 of db for signalled:"+ports(2), "logs", "service/signalled")
		s.Prints("told 2 in sql://", "logs", "service/restarted")
		exec("left", "2 tasks")
		for name, before := range first {
			now := running(t, s, name, 1)[0]
			if now.UUID != before.UUID || now.Restarts != 0 {
				t.Errorf("%s is another attempt, or %d restarts count", name, now.Restarts)
			}
		}
		s.Prints("the addresses of service db changed", "events", "--tail", "200")
		if out := s.Berth("logs", "service/left").Stdout; strings.Contains(out, "signalled") ||
			strings.Count(out, "begun") != 1 {
			t.Errorf("the task that reads the names itself got a signal, or began again:\n%s", out)
		}

		// 2. A restarted agent repeats nothing. A change during its absence is delivered once.
		agent.Kill()
		agent = s.Agent()
		exec("left", "2 tasks")
		agent.Kill()
		s.Berth("scale", "--detach", "service/db", "1").Want(t, 0)
		s.Agent()
		s.Prints("signal 2: 1 of db for signalled:", "logs", "service/signalled")
		exec("left", "1 tasks")
		if out := s.Berth("logs", "service/signalled").Stdout; strings.Contains(out, "signal 3") ||
			strings.Count(out, "begun") != 1 {
			t.Errorf("it got more than the changes:\n%s", out)
		}

		// 3. Tasks keep the last addresses of a service that is gone, and report that it is gone.
		s.Berth("scale", "--detach", "service/db", "0").Want(t, 0)
		s.Prints("service db has no healthy task: container main continues with the last addresses", "status",
			"service/signalled")
		exec("left", "1 tasks")
		s.Berth("delete", "service/signalled").Want(t, 0)
		s.Eventually(soon, func() error {
			if left := alive(s, "signalled"); len(left) > 0 {
				return errors.New("it is not gone yet")
			}
			return nil
		})
	})
}

// An invalid template is refused with its place and the remedy, all faults together.
func TestBrokenTemplatesAreRefused(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Server()
	broken := strings.NewReplacer(
		`{{len (service "db" "sql")}} of`, "\n          {{len (service $name \"sql\")}} {{file \"/etc/shadow\"}} of",
		`{{len (service "db.default" "sql")}} tasks`, `{{range service "db" "sql"}}{{.Host}}{{end}}`,
		`env: DB}`, `env: DB, on_change: signal}`,
	).Replace(followers)
	s.Berth("run", s.Write("broken.yaml", broken)).Want(t, 2,
		"containers[0].files[0].content", `undefined variable "$name"`,
		"there is no field Host: want Address, Port, Node or Task",
		"containers[0].services[0].on_change", "the variables of a running program cannot change",
	)
	unknown := strings.Replace(followers, `{{len (service "db" "sql")}} of`,
		"\n          {{$n := 1}}{{file \"/etc/shadow\"}} {{env \"NOTHING\"}} of", 1)
	s.Berth("run", s.Write("unknown.yaml", unknown)).Want(t, 2, `line 2: there is no function "file": want one of and`)
}

package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/berthd/berth/test/harness"
)

const webImage = "berth.test/web:1"

// website is a service whose tasks answer with their index.
const website = `
kind: TaskDefinition
name: website
version: 1
containers:
  - name: main
%s
    env: {STOP_DELAY: 10ms}
    resources: {cpu: 10m, memory: 64MiB}
ports:
  - name: http
checks:
  - {name: up, type: http, path: /healthz, interval: 200ms}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: website
definition: website
count: 2
`

var listening = regexp.MustCompile(`(127\.0\.0\.1:\d+) -> `)

// Many parallel connections on this machine reach the ports of tasks. Connections to a service reach its present tasks.
// Connections to a task end with the task.
func TestPortForward(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Server()
		s.Agent()
		program := harness.Program(t, s.Dir, "./examples/programs/web")
		what := fmt.Sprintf("    command: [%q]", program)
		if executor == harness.Containerd { // the image contains only the program
			s.Berth("image", "load", harness.ProgramImage(t, s.Dir, webImage, program)).Want(t, 0)
			what = "    image: " + webImage
		}
		s.Berth("run", s.Write("website.yaml", fmt.Sprintf(website, what))).Want(t, 0, "2/2")
		tasks := running(t, s, "website", 2)

		service := s.Start("port-forward", "website", "0:http")
		task := s.Start("port-forward", "website.1.1", "0:http", fmt.Sprintf("0:%d", tasks[1].Ports["http"]))
		addresses := func(d *harness.Daemon, n int) (all []string) {
			t.Helper()
			s.Eventually(soon, func() error {
				all = nil
				for _, m := range listening.FindAllStringSubmatch(d.Output(), -1) {
					all = append(all, m[1])
				}
				if len(all) != n {
					return fmt.Errorf("it listens at %v, want %d:\n%s", all, n, d.Output())
				}
				return nil
			})
			return all
		}
		ofService, ofTask := addresses(service, 1)[0], addresses(task, 2)

		// Many parallel requests, each over a connection of its own.
		answers := map[string]int{}
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 24 {
			all.Go(func() {
				to := []string{ofService, ofTask[0], ofTask[1]}[i%3]
				body, err := ask(to)
				if err != nil {
					t.Errorf("connection %d to %s: %v\n%s", i, to, err, service.Output()+task.Output())
					return
				}
				mu.Lock()
				defer mu.Unlock()
				answers[fmt.Sprintf("%d %s", min(i%3, 1), regexp.MustCompile(`website\.1\.\d`).FindString(body))]++
			})
		}
		all.Wait()
		if answers["1 website.1.1"] != 16 || answers["0 website.1.0"]+answers["0 website.1.1"] != 8 ||
			answers["0 website.1.0"] == 0 || answers["0 website.1.1"] == 0 {
			t.Errorf("who answered: %v", answers)
		}

		// A port without a listener, and a local port that is in use.
		none := s.Start("port-forward", "website.1.0", "0:1")
		if body, err := ask(addresses(none, 1)[0]); err == nil {
			t.Errorf("a port without anybody answers %q", body)
		}
		s.Eventually(soon, func() error {
			if !strings.Contains(none.Output(), "port 1 does not answer: nothing listens there (connection refused)") {
				return fmt.Errorf("it says:\n%s", none.Output())
			}
			return nil
		})
		_, port, _ := strings.Cut(ofService, ":")
		s.Berth("port-forward", "website", port+":http").Want(t, 2, "address already in use", "0:http")
		s.Berth("port-forward", "website", "8080:htp").Want(t, 2,
			`"htp" is neither a number nor a port of service/website, which has http`)

		// The task ends, and so does its command. The command of the service continues with the running tasks.
		s.Berth("scale", "--detach", "service/website", "1").Want(t, 0)
		if code := task.Exit(soon); code != 1 || !strings.Contains(task.Output(), "task website.1.1 has ended") {
			t.Errorf("after the task's end: exit code %d:\n%s", code, task.Output())
		}
		s.Eventually(soon, func() error {
			body, err := ask(ofService)
			if err == nil && !strings.Contains(body, "website.1.0") {
				err = fmt.Errorf("got %q", body)
			}
			return err
		})
		if code := service.Stop(); code != 130 {
			t.Errorf("an interrupt ends it with %d:\n%s", code, service.Output())
		}
	})
}

// ask sends one request over a connection of its own.
func ask(address string) (string, error) {
	transport := &http.Transport{DisableKeepAlives: true}
	defer transport.CloseIdleConnections()
	client := http.Client{Transport: transport, Timeout: soon}
	res, err := client.Get("http://" + address + "/version")
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	return string(body), err
}

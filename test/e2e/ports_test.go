package e2e_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// TestReservedPorts: a task that requests a port of the operator's reserved range waits, with the port in the reason,
// until the node reserves another range.
func TestReservedPorts(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	s.Server()
	agent := s.Agent("--reserved-ports", "29881,29890-29899")
	s.Berth("status", "node/"+harness.NodeName).Want(t, 0, "reserved ports", "29881,29890-29899")
	fixed := s.Write("fixed.yaml", `
kind: TaskDefinition
name: fixed
version: 1
ports: [{name: http, port: 29895}]
containers: [{name: main, command: [/bin/sleep, "1000"], resources: {cpu: 10m, memory: 16MiB}}]
grace: 1s
---
kind: Service
name: fixed
definition: fixed@1
count: 1
`)
	s.Berth("run", "--detach", fixed).Want(t, 0)
	s.Eventually(soon, func() error {
		if out := s.Berth("explain", "fixed.1.0").Stdout; !strings.Contains(out, "29895") {
			return errors.New("no reason with the port: " + out)
		}
		return nil
	})
	agent.Stop()
	s.Agent("--reserved-ports", "29881")
	running(t, s, "fixed", 1)
}

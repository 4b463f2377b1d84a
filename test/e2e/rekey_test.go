package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/test/harness"
)

// masterIDs are the ids in the answer of `berth operator secrets keys`, by their states.
func masterIDs(t *testing.T, r harness.Result) map[string]string {
	t.Helper()
	r.Want(t, 0)
	ids := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^([0-9a-f]{16}) +([a-z-]+) `).FindAllStringSubmatch(r.Stdout, -1) {
		ids[m[2]] = m[1]
	}
	return ids
}

// The master key is replaced while a task runs with a secret. A later task, also after a restart of the server, gets
// the same value. A server with the old file names the missing key and the remedy, and continues once it has the key.
// Snapshots name the key that they need.
func TestRekey(t *testing.T) {
	t.Parallel()
	s := harness.New(t, harness.Process)
	server := s.Server()
	s.Agent()
	file := filepath.Join(s.ServerDir, "secrets.key")
	s.BerthWith(strings.NewReader("fleet-Hush7\n"), "secret", "set", "word").Want(t, 0)
	s.Berth("run", s.Write("asks.yaml", fmt.Sprintf(asks, "asks"))).Want(t, 0)
	s.Prints("it is there", "logs", "service/asks")
	first := running(t, s, "asks", 1)[0]
	old := masterIDs(t, s.Berth("operator", "secrets", "keys"))["in-use"]
	before := readBytes(t, file)
	snapshot := filepath.Join(s.Dir, "snapshot")
	s.Berth("operator", "snapshot", "save", snapshot).Want(t, 0, "secrets.key", "with the key "+old)

	s.Berth("operator", "secrets", "rekey").Want(t, 0, "1 secret encrypted under the master key",
		"The older key "+old+" is kept", "drop-key "+old)
	keys := masterIDs(t, s.Berth("operator", "secrets", "keys"))
	if keys["kept"] != old || keys["in-use"] == old || keys["in-use"] == "" {
		t.Fatalf("the keys after it: %v, before it was %s", keys, old)
	}
	if same := running(t, s, "asks", 1)[0]; same.UUID != first.UUID {
		t.Error("the task was replaced")
	}
	if text := string(readBytes(t, filepath.Join(s.ServerDir, "audit.log"))); !strings.Contains(text,
		`"operation":"rekeySecrets","object":"master key `+keys["in-use"]+`"`) {
		t.Error("the audit log does not have it")
	}
	s.Berth("events", "--tail", "-1").Want(t, 0, "all secrets are sealed under the master key "+keys["in-use"])

	// Another process of the server, another task.
	server.Stop()
	server = s.Server()
	s.Berth("restart", "service/asks").Want(t, 0)
	second := running(t, s, "asks", 1)[0]
	if second.UUID == first.UUID {
		t.Error("the task was not replaced")
	}
	s.Prints("it is there", "logs", string(second.ID))

	// With only the old file it decrypts nothing, and reports why.
	after := readBytes(t, file)
	server.Stop()
	if err := os.WriteFile(file, before, 0o600); err != nil {
		t.Fatal(err)
	}
	server = s.Server()
	s.BerthWith(strings.NewReader("other\n"), "secret", "set", "word").Want(t, 2,
		keys["in-use"]+" is needed, and "+file+" holds "+old, "the copy of it that was kept")
	s.Eventually(soon, func() error {
		if out := server.Output(); !strings.Contains(out, "this server lacks a secrets key") ||
			!strings.Contains(out, keys["in-use"]) {
			return fmt.Errorf("the log does not say it:\n%s", out)
		}
		return nil
	})
	if text := s.Berth("operator", "secrets",
		"keys").Stdout; !regexp.MustCompile(keys["in-use"] + ` +in-use +1 .* \S+\n`).MatchString(text) {
		t.Errorf("the list of keys does not show what is lacking:\n%s", text)
	}
	// The line is added while it runs.
	if err := os.WriteFile(file, after, 0o600); err != nil {
		t.Fatal(err)
	}
	s.Eventually(soon, func() error {
		if r := s.BerthWith(strings.NewReader("fleet-Hush7\n"), "secret", "set", "word"); r.Code != 0 {
			return fmt.Errorf("with the key in the file: %v", r)
		}
		return nil
	})

	// The older key is dropped. The earlier snapshot reports that it needs that key.
	s.Berth("operator", "secrets", "drop-key", keys["in-use"]).Want(t, 2, "is in use")
	s.Berth("operator", "secrets", "drop-key", old).Want(t, 0, "is dropped")
	s.Eventually(soon, func() error {
		if text := readBytes(t, file); bytes.Count(text, []byte("\n")) != 1 || bytes.Contains(text, before) {
			return errors.New("the older key is still in the file")
		}
		return nil
	})
	elsewhere := filepath.Join(s.Dir, "elsewhere")
	if err := errors.Join(os.Mkdir(elsewhere, 0o700),
		os.WriteFile(filepath.Join(elsewhere, "secrets.key"), readBytes(t, file), 0o600)); err != nil {
		t.Fatal(err)
	}
	s.Berth("operator", "snapshot", "restore", snapshot, "--data-dir", elsewhere).Want(t, 0, "with the key "+old,
		"backup of the time of the snapshot")
}

// remembers is a service that keeps printing the secret of its start.
const remembers = `
kind: TaskDefinition
name: remembers
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command:
      - sh
      - -c
      - |
        word=$(cat /run/keeper/word)
        n=0
        while :; do n=$((n+1)); echo "line $n, it was $word"; sleep 0.2; done
    resources: {cpu: 10m, memory: 64MiB}
    secrets: [{secret: word, file: /run/keeper/word, on_change: noop}]
grace: 1s
---
kind: Service
name: remembers
definition: remembers
count: 1
`

// The old value of a changed secret stays masked in the log, also after the agent and the log's writer were killed.
func TestFormerValuesAreMaskedByTheNextCollector(t *testing.T) {
	t.Parallel()
	harness.Need(t, harness.Containerd)
	s := harness.New(t, harness.Containerd)
	s.Server()
	agent := s.Agent()
	s.BerthWith(strings.NewReader("Hush7-the-first"), "secret", "set", "word").Want(t, 0)
	s.Berth("run", s.Write("remembers.yaml", remembers)).Want(t, 0)
	task := running(t, s, "remembers", 1)[0]
	s.Prints("it was [secret]", "logs", "service/remembers")
	s.BerthWith(strings.NewReader("Hush7-the-next"), "secret", "set", "word").Want(t, 0)
	s.Eventually(soon, func() error {
		if r := s.Berth("exec", string(task.ID), "--", "sh", "-c",
			`[ "$(cat /run/keeper/word)" = Hush7-the-next ]`); r.Code != 0 {
			return fmt.Errorf("the file is not replaced: %v", r)
		}
		return nil
	})
	killed := 0
	agent.Kill()
	for _, pid := range harness.ProcessesOf(s.AgentDir) {
		if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil &&
			bytes.Contains(text, []byte("collect-logs")) {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			killed++
		}
	}
	if killed != 1 {
		t.Fatalf("%d collectors were killed, want 1", killed)
	}
	said := len(s.Berth("logs", "service/remembers").Stdout)
	s.Agent()
	s.Eventually(soon, func() error {
		if r := s.Berth("logs", "service/remembers"); r.Code != 0 || len(r.Stdout) < said+200 {
			return fmt.Errorf("the log does not continue: %v", r)
		}
		return nil
	})
	if r := s.Berth("logs", "service/remembers"); strings.Contains(r.Stdout+r.Stderr, "Hush7") {
		t.Errorf("the log contains an earlier value: %v", r)
	}
	unseen(t, s.Dir, "Hush7")
	if same := running(t, s, "remembers", 1)[0]; same.UUID != task.UUID {
		t.Error("the task was replaced")
	}
}

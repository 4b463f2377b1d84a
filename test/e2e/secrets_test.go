package e2e_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/testkit"
	"github.com/berthd/berth/test/harness"
)

// keeper is a service that gets secrets in every way, and prints only their sizes.
const keeper = `
kind: TaskDefinition
name: keeper
version: 1
containers:
  - name: main
    image: ` + harness.Image + `
    command:
      - sh
      - -c
      - |
        trap 'echo "signalled, the token has ${#TOKEN} and the file $(cat /run/keeper/cert | head -c 5)"' HUP
        [ "$(cat /run/keeper/password)" = "$PASSWORD" ] && echo "both passwords are the same"
        echo "it has ${#PASSWORD} bytes"
        echo "the password is $PASSWORD, the certificate $(cat /run/keeper/cert | head -c 4)" >&2
        while :; do sleep 0.1; done
    resources: {cpu: 10m, memory: 64MiB}
    secrets:
      - {secret: db-password, file: /run/keeper/password}
      - {secret: db-password, env: PASSWORD}
      - {secret: cert, file: /run/keeper/cert, mode: "0440", on_change: signal}
min_healthy_time: 100ms
grace: 1s
---
kind: Service
name: keeper
definition: keeper
count: 1
`

// A task waits for its secrets with a reason, gets them in files and variables, and gets new values in the way of each
// use. No value is on a disk, in a log, in an event or in an answer.
func TestSecrets(t *testing.T) {
	t.Parallel()
	harness.Each(t, func(t *testing.T, executor string) {
		s := harness.New(t, executor)
		s.Server()
		agent := s.Agent()
		const password, other, cert, next = "Hush7first-value", "Hush7another-and-longer",
			"Hush7cert\nHush7second-line\n", "Rolled-Hush7cert"
		set := func(name, value string, words ...string) {
			t.Helper()
			s.BerthWith(strings.NewReader(value), "secret", "set", name, "--keep-newline").Want(t, 0, words...)
		}
		// 1. It waits for the missing secret, and its reason names the remedy.
		set("cert", cert, "version 1")
		s.Berth("run", "--detach", s.Write("keeper.yaml", keeper)).Want(t, 0)
		s.Prints("the secret db-password does not exist in cluster default: `berth secret set db-password` makes it",
			"status", "service/keeper")
		s.Prints("the secret db-password does not exist", "explain", "service/keeper")
		set("db-password", password, "version 1")
		first := running(t, s, "keeper", 1)[0]
		s.Prints("both passwords are the same", "logs", "service/keeper")
		s.Prints(fmt.Sprintf("it has %d bytes", len(password)), "logs", "service/keeper")
		s.Prints("the password is [secret], the certificate Hush", "logs", "service/keeper")
		// 2. A signal, and the file changes in place. A new agent without the old value does the same.
		s.Berth("exec", string(first.ID), "--", "sh", "-c",
			`[ "$(cat /run/keeper/cert | head -c 9)" = Hush7cert ] && [ -n "$PASSWORD" ]`).Want(t, 0)
		agent.Kill()
		set("cert", next, "version 2")
		s.Agent()
		s.Prints("and the file Rolle", "logs", "service/keeper")
		// 3. A restart, for the password.
		set("db-password", password) // the same again is nothing
		if same := running(t, s, "keeper", 1)[0]; same.UUID != first.UUID {
			t.Error("the same value again restarted the task")
		}
		set("db-password", other, "version 2", "keeper")
		s.Prints(fmt.Sprintf("it has %d bytes", len(other)), "logs", "service/keeper")
		if second := running(t, s, "keeper", 1)[0]; second.UUID == first.UUID {
			t.Error("the task runs on with the old password")
		}
		// 4. Another key seals all values. No answer contains them.
		s.Berth("operator", "secrets", "rotate-key").Want(t, 0, "2 secrets encrypted with data key 2")
		s.Berth("secret", "rm", "cert").Want(t, 2, " service/keeper", "--force")
		s.Berth("secret", "ls").Want(t, 0, "cert", "db-password", " service/keeper")
		s.Berth("operator", "snapshot", "save", filepath.Join(s.Dir, "snapshot")).Want(t, 0, "secrets.key")
		bundle := filepath.Join(s.Dir, "debug.tar.gz")
		s.Berth("operator", "debug", "-o", bundle, "--cpu", "0").Want(t, 0)
		unpacked, err := exec.CommandContext(t.Context(), "tar", "-xzOf", bundle).Output()
		if err != nil || len(unpacked) == 0 || bytes.Contains(unpacked, []byte("Hush7")) {
			t.Errorf("the bundle of %d bytes contains a secret, or: %v", len(unpacked), err)
		}
		for _, args := range [][]string{
			{"secret", "ls", "-o", "yaml"},
			{"events", "--tail", "-1"},
			{"status", "-o", "yaml"},
			{"status", "service/keeper", "-o", "yaml"},
			{"ps", "-o", "yaml"},
			{"explain", "service/keeper", "-o", "yaml"},
			{"logs", "service/keeper"},
		} {
			if r := s.Berth(args...); r.Code != 0 || strings.Contains(r.Stdout+r.Stderr, "Hush7") {
				t.Errorf("berth %v: %v", args, r)
			}
		}
		s.Berth("secret", "rm", "cert", "--force").Want(t, 0)
		unseen(t, s.Dir, "Hush7")
		if text := string(readBytes(t, filepath.Join(s.ServerDir, "audit.log"))); !strings.Contains(text,
			`"operation":"writeSecret"`) || !strings.Contains(text, "default/db-password") {
			t.Error("the audit log does not name the user who set a secret")
		}
		// 5. The files in memory are removed with the task.
		s.Berth("delete", "service/keeper").Want(t, 0)
		s.Eventually(soon, func() error {
			for _, place := range []string{
				"/run/berth-secrets",
				fmt.Sprintf("/dev/shm/berth-secrets-%d", os.Geteuid()),
			} {
				for _, uuid := range []string{first.UUID} {
					if _, err := os.Stat(filepath.Join(place, uuid)); err == nil {
						return errors.New(filepath.Join(place, uuid) + " is left")
					}
				}
			}
			return nil
		})
	})
}

func readBytes(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// unseen checks that no file below a folder and no process's output contains a word, in plain text or in base64 at any
// of its three offsets.
func unseen(t *testing.T, dir, word string) {
	t.Helper()
	read := 0
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil //nolint:nilerr // a file may be gone by now
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return nil //nolint:nilerr // the same
		}
		read++
		for _, form := range []string{word, "SHVzaD", "h1c2g3", "IdXNoN"} {
			if bytes.Contains(b, []byte(form)) {
				t.Errorf("%s contains the secret (as %q)", path, form)
			}
		}
		return nil
	})
	if err != nil || read < 10 {
		t.Errorf("read %d files: %v", read, err)
	}
}

// The servers of a fleet open each other's secrets: the key came with the join. Agents of other nodes are not given
// them, and an agent that is connected in the clear gets none.
func TestSecretsOfAFleet(t *testing.T) {
	t.Parallel()
	testkit.NeedRoot(t)
	f := harness.NewFleet(t)
	hosts := harness.Loopback(4)
	f.Start(hosts[:3]...)
	f.Agent(hosts[3])
	f.Servers[0].Berth("secret", "ls").Want(t, 0)
	for i, s := range f.Servers {
		if key := readBytes(t, filepath.Join(s.Dir, "secrets.key")); !bytes.Equal(key,
			readBytes(t, filepath.Join(f.Servers[0].Dir, "secrets.key"))) {
			t.Errorf("server %d has another key", i)
		}
	}
	f.BerthWith(strings.NewReader("fleet-Hush7\n"), "secret", "set", "word").Want(t, 0)
	for i, s := range f.Servers { // whichever the agent is connected to
		name := fmt.Sprintf("asks-%d", i)
		s.Berth("run", f.Write(name+".yaml", fmt.Sprintf(asks, name))).Want(t, 0)
		f.Prints("it is there", "logs", "service/"+name)
	}
}

// asks is a service with one secret.
const asks = `
kind: TaskDefinition
name: %[1]s
version: 1
containers:
  - name: main
    command: [sh, -c, '[ "$WORD" = fleet-Hush7 ] && echo it is there; exec sleep 100000']
    resources: {cpu: 10m, memory: 16MiB}
    secrets: [{secret: word, env: WORD, on_change: noop}]
grace: 1s
---
kind: Service
name: %[1]s
definition: %[1]s
count: 1
`

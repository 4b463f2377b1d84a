package process_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/berthd/berth/internal/executor"
	"github.com/berthd/berth/internal/executor/executortest"
	"github.com/berthd/berth/internal/executor/process"
	"github.com/berthd/berth/internal/suite/suitetest"
	"github.com/berthd/berth/internal/testkit"
)

// TestSmallProgram runs the suite with the program that berth embeds.
func TestSmallProgram(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	file := filepath.Join(t.TempDir(), "supervisor")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", file, "./supervisor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	program, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	small := func(c *process.Config) { c.Program = string(program) }
	suitetest.Run(t, executortest.Cases(), func(t *testing.T) executortest.Machine { return machine(t, small) })

	dir := t.TempDir()
	file = startedFile(t, newExecutor(t, dir, small), dir)
	if !strings.HasPrefix(file, "/memfd:") {
		t.Errorf("the supervisor runs %s, want the program in memory", file)
	}
}

// TestProgramThatDoesNotRun has the supervisors run the executable where the machine does not run the small program.
func TestProgramThatDoesNotRun(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.NeedCommand(t, "busybox")
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"", "no program", "#!/bin/busybox true\n"} {
		dir := t.TempDir()
		ex := newExecutor(t, dir, func(c *process.Config) { c.Program = program })
		if got := startedFile(t, ex, dir); got != own {
			t.Errorf("with the program %q the supervisor runs %s, want %s", program, got, own)
		}
	}
}

// startedFile starts a container and returns the file that its supervisor runs.
func startedFile(t *testing.T, ex executor.Executor, dir string) string {
	t.Helper()
	const id = "file"
	work := t.TempDir()
	err := ex.Prepare(t.Context(), executor.Spec{
		ID: id, Container: shell("exec sleep 1000"), Dir: filepath.Join(work, "dir"),
		LogDir: filepath.Join(work, "logs"),
	}, nil)
	if err == nil {
		_, err = ex.Start(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := ex.Remove(context.WithoutCancel(t.Context()), id); err != nil {
			t.Error(err)
		}
	})
	pids := supervisors(dir, id)
	if len(pids) != 1 {
		t.Fatalf("there are %d supervisors", len(pids))
	}
	file, err := os.Readlink(filepath.Join("/proc", strconv.Itoa(pids[0]), "exe"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

package harness

import (
	"archive/tar"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// programs has a function for each program that was requested in this process, by its folder. The first call of the
// function builds the program, and each call returns its path. removePrograms removes them.
var programs sync.Map

// Program builds a command of this module, such as "./test/load/task", as a static program in a folder and returns its
// path. The folder of a command may be a module of its own. Each command is built once in a process, until Main ends.
func Program(tb testing.TB, dir, pkg string) string {
	tb.Helper()
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	build, _ := programs.LoadOrStore(filepath.Join(root, pkg), sync.OnceValues(func() (string, error) {
		return buildProgram(filepath.Join(root, pkg))
	}))
	built, err := build.(func() (string, error))()
	if err != nil {
		tb.Fatalf("build %s: %v", pkg, err)
	}
	// This process must not write the file itself: a child that is forked meanwhile holds it open for writing, and the
	// kernel runs no such file.
	path := filepath.Join(dir, filepath.Base(pkg))
	if out, err := exec.CommandContext(tb.Context(), "cp", built, path).CombinedOutput(); err != nil {
		tb.Fatalf("copy %s: %v\n%s", pkg, err, out)
	}
	return path
}

// buildProgram builds the command in a folder and returns the program's path. The test that needs it first may end
// before others that wait for it, so no test bounds the build.
func buildProgram(folder string) (string, error) {
	dir, err := os.MkdirTemp("", "berth-program-")
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "program")
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, ".")
	cmd.Dir, cmd.Env = folder, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("%w\n%s", err, out), os.RemoveAll(dir))
	}
	return path, nil
}

// removePrograms removes the programs that were built.
func removePrograms() {
	programs.Range(func(_, build any) bool {
		if built, err := build.(func() (string, error))(); err == nil {
			_ = os.RemoveAll(filepath.Dir(built)) // the system cleans its temporary folder
		}
		return true
	})
}

// ProgramImage writes an image with a single static program, as an archive for `berth image load`, and returns the
// archive's path. The program is the image's command.
func ProgramImage(tb testing.TB, dir, name, program string) string {
	tb.Helper()
	body, err := os.ReadFile(program)
	if err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	in := "/bin/" + filepath.Base(program)
	var entries []entry
	for _, d := range []string{"tmp/", "proc/", "sys/", "dev/", "etc/", "bin/"} {
		entries = append(entries, entry{tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil})
	}
	entries = append(entries, entry{tar.Header{Name: in[1:], Mode: 0o755}, body})
	image, err := imageArchive(name, map[string]any{"Cmd": []string{in}}, entries)
	if err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	path := filepath.Join(dir, filepath.Base(program)+".tar")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	return path
}

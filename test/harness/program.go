package harness

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	layer := archive(tb, func(w *tar.Writer) {
		for _, d := range []string{"tmp/", "proc/", "sys/", "dev/", "etc/", "bin/"} {
			add(tb, w, &tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		}
		add(tb, w, &tar.Header{Name: in[1:], Mode: 0o755}, body)
	})
	sum := sha256.Sum256(layer)
	config := encode(tb, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Cmd": []string{in}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	path := filepath.Join(dir, filepath.Base(program)+".tar")
	if err := os.WriteFile(path, imageArchive(tb, name, config, layer), 0o600); err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	return path
}

// imageArchive is the archive of an image of one layer.
func imageArchive(tb testing.TB, name string, config, layer []byte) []byte {
	tb.Helper()
	manifest := encode(tb, []map[string]any{
		{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}},
	})
	return archive(tb, func(w *tar.Writer) {
		add(tb, w, &tar.Header{Name: "config.json", Mode: 0o644}, config)
		add(tb, w, &tar.Header{Name: "layer.tar", Mode: 0o644}, layer)
		add(tb, w, &tar.Header{Name: "manifest.json", Mode: 0o644}, manifest)
	})
}

package harness

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// Program builds a command of this module, such as "./test/load/task", as a static program in a folder and returns its
// path.
func Program(tb testing.TB, dir, pkg string) string {
	tb.Helper()
	root, err := Root()
	if err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, filepath.Base(pkg))
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o", path, pkg)
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return path
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

package harness

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Image is the image of the tests' containers. The process executor runs programs of the machine instead.
const Image = "berth.local/shell:1"

// shellPrograms are the machine's programs that Image holds.
func shellPrograms() []string {
	return []string{
		"sh", "sleep", "cat", "env", "true", "false", "dd", "date", "head", "tail", "stty", "sha256sum",
		"ls", "mkdir", "chmod",
	}
}

var library = regexp.MustCompile(`(/\S+) \(0x`)

// shellImage writes Image as an archive that `berth image load` takes and returns its path: a shell and a
// few programs of this machine, with the libraries that they need.
func shellImage(tb testing.TB, dir string) string {
	tb.Helper()
	files := map[string]string{}
	for _, name := range shellPrograms() {
		path, err := exec.LookPath(name)
		if err != nil {
			tb.Fatalf("make an image: %v", err)
		}
		files["bin/"+name] = path
		out, err := exec.CommandContext(tb.Context(), "ldd", path).Output()
		if err != nil {
			continue // a static program
		}
		for _, m := range library.FindAllSubmatch(out, -1) {
			lib := string(m[1])
			files[strings.TrimPrefix(lib, "/")] = lib
		}
	}
	layer := archive(tb, func(w *tar.Writer) {
		for _, d := range []string{"tmp/", "proc/", "sys/", "dev/", "etc/"} {
			add(tb, w, &tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil)
		}
		for name, path := range files {
			body, err := os.ReadFile(path)
			if err != nil {
				tb.Fatalf("make an image: %v", err)
			}
			add(tb, w, &tar.Header{Name: name, Mode: 0o755}, body)
		}
	})
	sum := sha256.Sum256(layer)
	config := encode(tb, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sh"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	manifest := encode(tb, []map[string]any{
		{"Config": "config.json", "RepoTags": []string{Image}, "Layers": []string{"layer.tar"}},
	})
	whole := archive(tb, func(w *tar.Writer) {
		add(tb, w, &tar.Header{Name: "config.json", Mode: 0o644}, config)
		add(tb, w, &tar.Header{Name: "layer.tar", Mode: 0o644}, layer)
		add(tb, w, &tar.Header{Name: "manifest.json", Mode: 0o644}, manifest)
	})
	path := filepath.Join(dir, "shell.tar")
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	return path
}

func archive(tb testing.TB, fill func(*tar.Writer)) []byte {
	tb.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	fill(w)
	if err := w.Close(); err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	return b.Bytes()
}

func add(tb testing.TB, w *tar.Writer, h *tar.Header, body []byte) {
	tb.Helper()
	h.Size = int64(len(body))
	err := w.WriteHeader(h)
	if err == nil {
		_, err = w.Write(body)
	}
	if err != nil {
		tb.Fatalf("make an image: %v", err)
	}
}

func encode(tb testing.TB, v any) []byte {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	return b
}

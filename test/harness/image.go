package harness

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
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
	image, err := shellArchive()
	if err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	path := filepath.Join(dir, "shell.tar")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		tb.Fatalf("make an image: %v", err)
	}
	return path
}

// shellArchive returns the archive of Image, which is made once.
var shellArchive = sync.OnceValues(func() ([]byte, error) {
	files := map[string]string{}
	for _, name := range shellPrograms() {
		path, err := exec.LookPath(name)
		if err != nil {
			return nil, err
		}
		files["bin/"+name] = path
		out, err := exec.Command("ldd", path).Output()
		if err != nil {
			continue // a static program
		}
		for _, m := range library.FindAllSubmatch(out, -1) {
			lib := string(m[1])
			files[strings.TrimPrefix(lib, "/")] = lib
		}
	}
	var entries []entry
	for _, d := range []string{"tmp/", "proc/", "sys/", "dev/", "etc/"} {
		entries = append(entries, entry{tar.Header{Name: d, Typeflag: tar.TypeDir, Mode: 0o755}, nil})
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		body, err := os.ReadFile(files[name])
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{tar.Header{Name: name, Mode: 0o755}, body})
	}
	return imageArchive(Image, map[string]any{"Env": []string{"PATH=/bin"}, "Cmd": []string{"/bin/sh"}}, entries)
})

// entry is a file or folder of an archive.
type entry struct {
	header tar.Header
	body   []byte
}

// imageArchive returns the archive of an image of one layer that has these entries, with a configuration.
func imageArchive(name string, config map[string]any, entries []entry) ([]byte, error) {
	layer, err := archive(entries)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(layer)
	described, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal([]map[string]any{
		{"Config": "config.json", "RepoTags": []string{name}, "Layers": []string{"layer.tar"}},
	})
	if err != nil {
		return nil, err
	}
	return archive([]entry{
		{tar.Header{Name: "config.json", Mode: 0o644}, described},
		{tar.Header{Name: "layer.tar", Mode: 0o644}, layer},
		{tar.Header{Name: "manifest.json", Mode: 0o644}, manifest},
	})
}

func archive(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for i := range entries {
		h := &entries[i].header
		h.Size = int64(len(entries[i].body))
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(entries[i].body); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), w.Close()
}

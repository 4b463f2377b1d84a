package e2e_test

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/test/harness"
)

// list returns the names, permissions and link targets of all files below a folder.
func list(t *testing.T, dir string) (lines []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", strings.TrimPrefix(at, dir), info.Mode().Perm())
		if to, err := os.Readlink(at); err == nil {
			line = fmt.Sprintf("%s -> %s", strings.TrimPrefix(at, dir), to)
		}
		lines = append(lines, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return lines
}

func sumOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Files and folders are copied into containers and back unchanged. Nothing is written outside of the target, and
// impossible copies return errors.
func TestCopy(t *testing.T) {
	t.Parallel()
	const size = 50 << 20
	harness.Each(t, func(t *testing.T, executor string) {
		s := newBox(t, executor)
		at := func(name string) string { return filepath.Join(s.Dir, name) }
		big := make([]byte, size)
		_, _ = rand.Read(big) // never fails
		if err := os.WriteFile(at("big"), big, 0o640); err != nil {
			t.Fatal(err)
		}
		want := sumOf(t, at("big"))
		r := s.Berth("cp", "big", "box.1.0:big")
		r.Want(t, 0, "1 file copied, 50 MiB")
		up := r.Took
		s.Berth("exec", "box.1.0", "sha256sum", "big").Want(t, 0, want)
		s.Berth("exec", "box.1.0", "ls", "-l", "big").Want(t, 0, "-rw-r-----")
		r = s.Berth("cp", "box.1.0:big", "back")
		r.Want(t, 0, "1 file copied")
		if got := sumOf(t, at("back")); got != want {
			t.Errorf("it came back otherwise: %s, want %s", got, want)
		}
		t.Logf("50 MiB there in %v, back in %v", up.Round(time.Millisecond), r.Took.Round(time.Millisecond))

		// A folder under another name, and only the content of a folder.
		for _, dir := range []string{"tree", "tree/deep", "tree/closed"} {
			if err := os.Mkdir(at(dir), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		// order-free: independent
		for name, mode := range map[string]os.FileMode{
			"tree/run": 0o755, "tree/deep/secret": 0o600,
			"tree/closed/seen": 0o444,
		} {
			if err := os.WriteFile(at(name), []byte(name), mode); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink("../run", at("tree/deep/link")); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(at("tree/closed"), 0o555); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			for _, dir := range []string{"tree", "tree2/there"} {
				_ = os.Chmod(at(dir+"/closed"), 0o755) // so that it can be removed
			}
		})
		s.Berth("cp", "tree", "box.1.0:there").Want(t, 0, "3 files copied")
		s.Berth("exec", "box.1.0", "cat", "there/deep/link").Want(t, 0, "tree/run")
		mkdir(t, at("tree2"))
		s.Berth("cp", "box.1.0:there", "tree2/").Want(t, 0, "3 files copied")
		if diff := cmp.Diff(list(t, at("tree")), list(t, at("tree2/there"))); diff != "" {
			t.Errorf("the folder came back otherwise (-want +got):\n%s", diff)
		}
		s.Berth("cp", "tree/deep/.", "box.1.0:there").Want(t, 2,
			"the link link points to ../run, which leads out of the copied folder", "-L")
		s.Berth("cp", "-L", "tree/deep/.", "box.1.0:there").Want(t, 0, "2 files copied")
		s.Berth("exec", "box.1.0", "cat", "there/link", "there/secret").Want(t, 0, "tree/runtree/deep/secret")

		// Impossible copies.
		s.Berth("cp", "box.1.0:no-such-file", ".").Want(t, 2, "no-such-file: no such file")
		s.Berth("cp", "box.1.0:/dev/pts", "devices").Want(t, 0, `"pts/ptmx" is a device`)
		s.Berth("cp", "big", "box.1.0:no/such/folder").Want(t, 2, "create it first")
		s.Berth("cp", "big", "other").Want(t, 2, "either the source or the target must be in a task")
		s.Berth("cp", "no-such-file", "box.1.0:x").Want(t, 2, "no-such-file")
		s.Berth("cp", "-c", "other", "big", "box.1.0:x").Want(t, 2, `no container "other"`)
		if executor == harness.Containerd { // plain processes see the files of the node
			s.Berth("cp", "box.1.0:/../../../etc/passwd", ".").Want(t, 2, "no such file")
			s.Berth("exec", "box.1.0", "sh", "-c", "echo mine >/etc/hostile").Want(t, 0)
			s.Berth("cp", "box.1.0:/proc/1/root/etc/hostile", "hostile").Want(t, 0)
			if got := readFile(t, at("hostile")); got != "mine\n" {
				t.Errorf("another root than the container's was read: %q", got)
			}
		}
	})
}

package privatefile

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRead: a file that other users may read is refused, with the command that repairs it and without the content.
func TestRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := Read(file); err != nil || string(got) != "sesame\n" {
		t.Errorf("a private file: %q, %v", got, err)
	}
	for _, mode := range []os.FileMode{0o640, 0o604, 0o644} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		_, err := Read(file)
		if err == nil || !strings.Contains(err.Error(), "chmod 600 "+file) || strings.Contains(err.Error(), "sesame") {
			t.Errorf("mode %o: %v", mode, err)
		}
	}
}

package executortest

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/executor"
)

// renderedTest checks files that the agent replaces while the program runs: they belong to the user, each change is
// seen immediately and complete, and the program cannot write to their folder.
func renderedTest(b *bench) {
	folder := filepath.Join(b.TempDir(), "0")
	b.must(os.Mkdir(folder, 0o755))
	b.must(os.WriteFile(filepath.Join(folder, "app.conf"), []byte("first"), 0o400))
	b.must(os.WriteFile(filepath.Join(folder, "hello"), []byte("#!/bin/busybox sh\necho ran $1\n"), 0o500))
	s := b.spec(b.m.Shell(`cat /etc/berth-test/app.conf; echo; /etc/berth-test/hello; (echo x >/etc/berth-test/app.conf) 2>/dev/null && echo written; ` +
		`while [ "$(cat /etc/berth-test/app.conf)" = first ]; do sleep 0.02; done; cat /etc/berth-test/app.conf; echo; exec sleep 1000000`))
	if !b.m.OneUser {
		s.Container.User = "65534"
	}
	s.Rendered = []executor.Mount{{Source: folder, Path: "/etc/berth-test"}}
	b.start(s)
	b.appears(s, "first\nran\n")
	next := filepath.Join(filepath.Dir(folder), "next")
	b.must(os.WriteFile(next, []byte("second"), 0o600))
	b.must(os.Chmod(next, 0o444))
	b.must(os.Rename(next, filepath.Join(folder, "app.conf")))
	b.appears(s, "second\n")
	if out := b.output(s); strings.Contains(out, "written") {
		b.Errorf("the program could write to the folder of its files")
	}
}

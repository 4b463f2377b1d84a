package executortest

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthd/berth/internal/executor"
)

// secretsTest tests secrets. Files belong to the user alone and are replaced while the program runs. The program and
// further commands get the variables, and no file of the container holds them. Old and new values are masked in the
// log.
func secretsTest(b *bench) {
	memory := b.TempDir()
	folder, env := filepath.Join(memory, "files"), filepath.Join(memory, "env")
	write := func(name, content string) {
		b.must(os.WriteFile(name, []byte(content), 0o400))
	}
	b.must(os.Mkdir(folder, 0o755))
	write(filepath.Join(folder, "db"), "first")
	write(env, string(executor.EncodeEnv([]string{"PASSWORD=hidden-in-memory", "PLAIN=over\nlines"})))
	s := b.spec(b.m.Shell(`stat -c %a /run/berth-test/db; echo "$(cat /run/berth-test/db) $PASSWORD ${#PASSWORD}"; (echo x >/run/berth-test/db) 2>/dev/null && echo written; ` +
		`while [ "$(cat /run/berth-test/db)" = first ]; do sleep 0.02; done; echo "first, then $(cat /run/berth-test/db | tr a-z b-za)"; ` +
		`echo "it is $(cat /run/berth-test/db)"; echo "$PLAIN"; exec sleep 1000000`))
	if !b.m.OneUser {
		s.Container.User = "65534"
	}
	s.Env = []string{"PATH=/bin:/usr/bin", "PLAIN=before"}
	s.Secrets = []executor.Mount{{Source: folder, Path: "/run/berth-test"}}
	s.SecretEnv = env
	b.start(s)
	b.appears(s, "400\n[secret] [secret] 16\n")
	write(filepath.Join(memory, "next"), "second")
	b.must(os.Chmod(filepath.Join(memory, "next"), 0o444))
	// A replaced value is kept first in the list of values that the program may still print.
	b.must(os.Mkdir(filepath.Join(memory, executor.FormerFolder), 0o700))
	b.must(os.Link(filepath.Join(folder, "db"), filepath.Join(memory, executor.FormerFolder, "1")))
	b.must(os.Rename(filepath.Join(memory, "next"), filepath.Join(folder, "db")))
	b.appears(s, "[secret], then tfdpoe\nit is [secret]\nover\nlines\n")
	var out bytes.Buffer
	_, err := b.ex.Exec(b.Context(), s.ID,
		executor.Command{Args: []string{"/bin/busybox", "sh", "-c", `echo "$PASSWORD"`}, Stdout: &out})
	if err != nil || out.String() != "hidden-in-memory\n" {
		b.Errorf("a command beside the program: got %q, %v", out.String(), err)
	}
	b.must(filepath.WalkDir(s.Dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte("hidden-in-memory")) {
			b.Errorf("%s holds the value of a variable", path)
		}
		return nil
	}))
	if out := b.output(s); bytes.Contains([]byte(out), []byte("written")) {
		b.Errorf("the program could write to the folder of its secrets")
	}
}

package outlive

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/berthd/berth/internal/executor"
)

// BecomeSubcommand is the hidden subcommand with which a program is begun that gets variables from a file: main must
// return Become(os.Args[2:]) for it before it does anything else.
const BecomeSubcommand = "run-with-secrets"

// Become reads variables from a file, as executor.ReadEnv does, adds them to its own and becomes the program that
// follows in args, found as a shell finds it. So the variables are in no description of a container, which daemons keep
// on disk. It returns the exit code of a failure: 127 if there is no such program, else 126. It runs inside containers
// and needs only the file.
func Become(args []string) int {
	fail := func(code int, err error) int {
		fmt.Fprintln(os.Stderr, "berth:", err)
		return code
	}
	if len(args) < 2 {
		return fail(2, errors.New("this subcommand is berth's own, for containers with secrets"))
	}
	secret, err := executor.ReadEnv(args[0])
	if err != nil {
		return fail(126, err)
	}
	env := executor.WithEnv(os.Environ(), secret)
	program, err := find(args[1], env)
	if err != nil {
		return fail(127, err)
	}
	err = syscall.Exec(program, args[1:], env)
	return fail(126, fmt.Errorf("run %s: %w", program, err))
}

func find(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("command: %q is not found in PATH %q", name, path)
}

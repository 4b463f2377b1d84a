package network

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// tools runs programs that inherit the lock of the records, so that the next agent waits for them.
type tools struct{ records *records }

// nft runs the packet filter's command. The command holds the lock of the records, also if the agent dies before its
// end.
func (t tools) nft(ctx context.Context, stdin string, args ...string) error {
	out, err := t.run(ctx, "nft", args, nil, stdin)
	if err == nil {
		return nil
	}
	line, _, _ := bytes.Cut(bytes.TrimSpace(out.stderr), []byte("\n"))
	if len(line) == 0 {
		return fmt.Errorf("nft: %w", err)
	}
	return fmt.Errorf("nft: %s", line)
}

// findTool returns the path of a command. It also searches the administrator's folders, which are not in every PATH.
func findTool(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin", "/sbin"} {
		if err == nil || filepath.IsAbs(name) {
			break
		}
		path, err = exec.LookPath(filepath.Join(dir, name))
	}
	return path, err
}

// output is the output of a program.
type output struct{ stdout, stderr []byte }

// run runs a program that inherits the lock.
func (t tools) run(ctx context.Context, name string, args, env []string, stdin string) (output, error) {
	t.records.mu.Lock()
	lock := t.records.lock
	t.records.mu.Unlock()
	if lock == nil {
		return output{}, errNotOpen
	}
	ctx, cancel := context.WithTimeout(ctx, toolTimeout)
	defer cancel()
	path, err := findTool(name)
	if err != nil {
		return output{}, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = env
	cmd.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.ExtraFiles = append(cmd.ExtraFiles, lock)
	err = cmd.Run()
	return output{stdout.Bytes(), stderr.Bytes()}, err
}

package network

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// table returns the nft text that atomically replaces the published ports. If no record is on the bridge it only
// removes the old table.
//
// Traffic to a published number on any address of the node goes to the task. That holds for other machines, for the
// node itself, also over its loopback, and for tasks. Replies to the node and to tasks would bypass the node, so their
// connections get the bridge's address. Tasks reach other machines with the node's address. Nothing behind the bridge
// reaches a program that listens only on the node's loopback.
func table(name string, records []record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "add table ip %[1]s\ndelete table ip %[1]s\n", name)
	var subnets, published []string
	for _, r := range records {
		if !r.Made || r.Mode != cluster.NetworkBridge {
			continue
		}
		if !slices.Contains(subnets, r.Subnet) {
			subnets = append(subnets, r.Subnet)
		}
		for _, p := range r.Ports {
			published = append(published,
				fmt.Sprintf("meta l4proto { tcp, udp } th dport %d dnat to %s:%d", p.Node, r.Address, p.Inside))
		}
	}
	if len(subnets) == 0 {
		return b.String()
	}
	chain := func(name, hook string, rules ...string) {
		fmt.Fprintf(&b, "\tchain %s {\n", name)
		if hook != "" {
			fmt.Fprintf(&b, "\t\ttype %s; policy accept;\n", hook)
		}
		for _, r := range rules {
			fmt.Fprintf(&b, "\t\t%s\n", r)
		}
		b.WriteString("\t}\n")
	}
	from := strings.Join(subnets, ", ")
	fmt.Fprintf(&b, "table ip %s {\n", name)
	chain("guard", "filter hook prerouting priority -310", fmt.Sprintf("iifname %q ip daddr 127.0.0.0/8 drop", name))
	chain("published", "", published...)
	chain("arriving", "nat hook prerouting priority -100", "fib daddr type local jump published")
	chain("own", "nat hook output priority -100", "fib daddr type local jump published")
	chain("leaving", "nat hook postrouting priority 100",
		fmt.Sprintf("oifname %q ct status dnat ip saddr { 127.0.0.0/8, %s } masquerade", name, from),
		fmt.Sprintf("ip saddr { %s } oifname != %q masquerade", from, name))
	b.WriteString("}\n")
	return b.String()
}

// publish updates the table to the records. Concurrent calls share one update.
func (s *Spaces) publish(ctx context.Context) error {
	s.rules.Lock()
	defer s.rules.Unlock()
	text := table(s.bridge, s.all())
	if text != s.applied {
		if err := s.nft(ctx, text, "-f", "-"); err != nil {
			return fmt.Errorf("publish ports: %w", err)
		}
		s.applied = text
	}
	return s.publishNames(ctx, text != table(s.bridge, nil))
}

// published reports whether the table exists.
func (s *Spaces) published(ctx context.Context) bool {
	return s.nft(ctx, "", "list", "table", "ip", s.bridge) == nil
}

// nft runs the packet filter's command. The command holds the lock of the spaces, also if the agent dies meanwhile.
func (s *Spaces) nft(ctx context.Context, stdin string, args ...string) error {
	out, err := s.tool(ctx, "nft", args, nil, stdin)
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

// tool runs a program that inherits the lock.
func (s *Spaces) tool(ctx context.Context, name string, args, env []string, stdin string) (output, error) {
	s.mu.Lock()
	lock := s.lock
	s.mu.Unlock()
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

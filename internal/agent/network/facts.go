package network

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/berthd/berth/internal/cluster"
)

// Facts returns the networks that tasks can have on this machine, and what it lacks for the others. It opens the spaces
// if they are not open; before that Join and Leave fail. One goroutine calls it.
func (s *Spaces) Facts(ctx context.Context) []cluster.NetworkFact {
	none, bridge := s.lacks(ctx)
	clip := func(text string) string {
		return strings.ToValidUTF8(text[:min(len(text), cluster.MaxNetworkLacks)], "")
	}
	return []cluster.NetworkFact{
		{Mode: cluster.NetworkBridge, Lacks: clip(bridge), Subnet: s.Subnet.String()},
		{Mode: cluster.NetworkNone, Lacks: clip(none)},
	}
}

// lacks returns what the machine lacks for each mode, "" for nothing.
func (s *Spaces) lacks(ctx context.Context) (none, bridge string) {
	if os.Geteuid() != 0 {
		why := "the agent is not root, and so cannot make network namespaces; run it as root"
		return why, why
	}
	if err := s.records.open(); err != nil {
		why := "its records cannot be used: " + err.Error()
		return why, why
	}
	if none = s.kernelProblem(); none != "" {
		return none, none
	}
	var lacking []string
	if names := s.plugins.lacking(); len(names) > 0 {
		lacking = append(lacking,
			fmt.Sprintf("CNI plugins %s are missing in %s; install them (apt-get install containernetworking-plugins)",
				strings.Join(names, " and "), strings.Join(s.Plugins, ", ")))
	}
	if _, err := findTool("nft"); err != nil {
		lacking = append(lacking, "the command nft is missing; install it (apt-get install nftables)")
	} else if why := s.rulesProblem(ctx); why != "" {
		lacking = append(lacking, why)
	}
	if why := s.clash(); why != "" {
		lacking = append(lacking, why)
	}
	return none, strings.Join(lacking, "; and ")
}

// kernelProblem returns why the kernel creates no namespace; the test runs once.
func (s *Spaces) kernelProblem() string {
	if s.kernelResult == nil {
		why := ""
		file := filepath.Join(s.Dir, "try")
		err := makeSpace(file)
		if again := removeSpace(file); err == nil {
			err = again
		}
		if err != nil {
			why = fmt.Sprintf("the kernel refuses network namespaces to the agent (%v); give it "+
				"CAP_SYS_ADMIN and CAP_NET_ADMIN", err)
		}
		s.kernelResult = &why
		if why == "" && ownMounts() {
			s.Logger.Warn("the agent runs in a mount namespace of its own, so that its next process does not find "+
				"the networks of tasks; start it in the machine's mount namespace",
				"remedy", "no PrivateTmp, ProtectSystem or ip netns exec around it")
		}
	}
	return *s.kernelResult
}

// rulesProblem returns why the kernel has no bridge or rejects the table. The test uses a namespace of its own and is
// not repeated after a success.
func (s *Spaces) rulesProblem(ctx context.Context) string {
	if s.capable {
		return ""
	}
	err := inNewSpace(func() error {
		if err := makeBridge(s.bridge, s.Subnet); err != nil {
			return err
		}
		return s.filter.tools.nft(ctx, table(s.bridge, []record{{
			Mode: cluster.NetworkBridge, Made: true, Subnet: s.Subnet.String(),
			Address: firstAddress(s.Subnet).String(), Ports: []Port{{Node: 1, Inside: 1}},
		}}), "-f", "-")
	})
	if err != nil {
		return fmt.Sprintf("the kernel lacks what a bridge with published ports needs (%v); load the "+
			"modules bridge, nf_tables, nft_chain_nat, nft_masq and nft_fib_ipv4", err)
	}
	s.capable = true
	return ""
}

// ownMounts reports whether the agent is known to see other mounts than the machine's first process.
func ownMounts() bool {
	own, err := os.Stat("/proc/self/ns/mnt")
	first, err2 := os.Stat("/proc/1/ns/mnt")
	return err == nil && err2 == nil && !os.SameFile(own, first)
}

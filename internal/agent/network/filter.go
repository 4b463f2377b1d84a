package network

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
)

// filter keeps the packet filter's rules equal to the records: the published ports, and the answers to DNS questions.
// Both sets of rules are always rewritten as a whole. All methods may be called concurrently.
type filter struct {
	bridge  string // name of the bridge and of the table
	gateway netip.Addr
	records *records
	tools   tools
	logger  *slog.Logger

	mu      sync.Mutex // held while rules are written
	applied string     // the newest written table
	// namesAnswered means that the agent answers DNS questions; instead is the resolver to ask while it does not.
	// appliedNames is the newest written table for it.
	namesAnswered bool
	instead       netip.AddrPort
	appliedNames  string
}

// publish updates the table to the records. Concurrent calls share one update.
func (f *filter) publish(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	text := table(f.bridge, f.records.all())
	if text != f.applied {
		if err := f.tools.nft(ctx, text, "-f", "-"); err != nil {
			return fmt.Errorf("publish ports: %w", err)
		}
		f.applied = text
	}
	return f.publishNames(ctx, text != table(f.bridge, nil))
}

// published reports whether the table exists.
func (f *filter) published(ctx context.Context) bool {
	return f.tools.nft(ctx, "", "list", "table", "ip", f.bridge) == nil
}

// publishNames updates the rules for names to the records. If the kernel rejects them, tasks resolve names only while
// the agent runs, which is logged once. f.mu is held.
func (f *filter) publishNames(ctx context.Context, wanted bool) error {
	wanted = wanted && f.namesAnswered
	text := namesRules(f.bridge, f.gateway, f.instead, wanted)
	if text == f.appliedNames {
		return nil
	}
	err := f.tools.nft(ctx, text, "-f", "-")
	if err != nil && !wanted {
		return fmt.Errorf("remove the rules for names: %w", err)
	}
	if err != nil && ctx.Err() == nil {
		f.logger.Warn("while the agent is not running tasks behind the bridge find no names: the kernel "+
			"does not take the rules for it; load the module nft_socket", "error", err)
	}
	if ctx.Err() == nil {
		f.appliedNames = text
	}
	return nil
}

// answerNames makes the next rules direct DNS questions to the agent, and to instead while it does not run.
func (f *filter) answerNames(instead netip.AddrPort) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.namesAnswered, f.instead = true, instead
}

// forget makes the next publish write all rules.
func (f *filter) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.applied, f.appliedNames = "", ""
}

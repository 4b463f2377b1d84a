package endpoint

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/pause"
	"github.com/berthd/berth/internal/wording"
)

// Intervals of a publisher.
const (
	// readWait is how long a read waits for other addresses. The first read after a failed one waits retryWait, so that
	// the end of an outage is noticed without a change.
	readWait  = 20 * time.Second
	retryWait = time.Second
	// shortestRetry and longestRetry limit the pause before a failed read of addresses is repeated.
	shortestRetry = 200 * time.Millisecond
	longestRetry  = 5 * time.Second
	// longestApplyRetry is the longest pause before a failed replacement or reload is repeated.
	longestApplyRetry = time.Minute
)

// source reads the addresses of one endpoint.
type source struct {
	name string // as the argument that names the endpoint
	// read returns the addresses once they differ from those at the index, or after the wait. With index 0 it returns
	// them at once. They are never older than those at the index, whichever server answers.
	read func(ctx context.Context, index uint64, wait time.Duration) (list []Address, next uint64, err error)
}

// update is the answer of a source.
type update struct {
	source string
	list   []Address
	err    error
}

// publisher keeps a file up to date with the addresses of endpoints, and has a program read the file again after each
// change. While an endpoint cannot be read, the file stays as it is. The file and the program may fail; each is tried
// again.
type publisher struct {
	sources []source
	// render makes the text of the file from the addresses of each endpoint.
	render func(map[string][]Address) (string, error)
	// replace replaces the file atomically, and reports whether the text differs from the one before.
	replace func(text string) (changed bool, err error)
	// reload has the program read the file; nil if there is none.
	reload func(context.Context) error
	// minInterval is the shortest time between the end of a reload and the next replacement.
	minInterval time.Duration
	path        string
	// report prints a message, and describe the text of an error.
	report   func(format string, args ...any)
	describe func(error) string

	known   map[string][]Address
	failed  map[string]string // sources that cannot be read, with the text of their error
	backoff pause.Backoff     // of applying
	// loaded says that the program has read the file since the start of the publisher. An earlier publisher may have
	// ended between the replacement and the reload.
	loaded bool
}

// run publishes until ctx ends. It returns the error of ctx, or that of a source whose first answer is a refusal.
func (p *publisher) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	p.known, p.failed = map[string][]Address{}, map[string]string{}
	p.backoff = pause.Backoff{Shortest: max(p.minInterval, shortestRetry), Longest: longestApplyRetry}
	updates := make(chan update)
	var followers sync.WaitGroup
	defer followers.Wait()
	defer cancel()
	for _, s := range p.sources {
		followers.Go(func() { follow(ctx, s, updates) })
	}
	var due <-chan time.Time // of the next replacement; nil while nothing has changed
	var applied time.Time    // the end of the last one
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u := <-updates:
			changed, err := p.take(u)
			if err != nil {
				return err
			}
			if changed {
				due = time.After(time.Until(applied.Add(p.minInterval)))
			}
		case <-due:
			due = nil
			isDone := p.apply(ctx)
			applied = time.Now()
			if isDone {
				p.backoff.Reset()
			} else {
				due = time.After(p.backoff.Next())
			}
		}
	}
}

// follow sends the answers of a source until ctx ends.
func follow(ctx context.Context, s source, to chan<- update) {
	retry := pause.Backoff{Shortest: shortestRetry, Longest: longestRetry, Random: rand.Float64}
	index, wait := uint64(0), readWait
	for ctx.Err() == nil {
		list, next, err := s.read(ctx, index, wait)
		u := update{s.name, list, err}
		select {
		case to <- u:
		case <-ctx.Done():
			return
		}
		if err == nil {
			index, wait = next, readWait
			retry.Reset()
			continue
		}
		wait = retryWait
		if pause.For(ctx, retry.Next()) != nil {
			return
		}
	}
}

// take takes in the answer of a source. It reports whether there is something to apply: all endpoints were read, and
// the addresses of one have changed.
func (p *publisher) take(u update) (changed bool, err error) {
	before, wasKnown := p.known[u.source]
	if u.err != nil {
		status := client.StatusOf(u.err)
		if !wasKnown && (status == http.StatusNotFound || status == http.StatusForbidden ||
			status == http.StatusUnauthorized) {
			return false, fmt.Errorf("read the addresses of %s: %w", u.source, u.err)
		}
		text := p.describe(u.err)
		if !slices.Contains(slices.Collect(maps.Values(p.failed)), text) {
			p.report("berth: %s: %s; %s stays as it is, trying again", u.source, text, p.path)
		}
		p.failed[u.source] = text
		return false, nil
	}
	if p.failed[u.source] != "" {
		delete(p.failed, u.source)
		if len(p.failed) == 0 {
			p.report("berth: the addresses of all endpoints are known again")
		}
	}
	p.known[u.source] = u.list
	return len(p.known) == len(p.sources) && (!wasKnown || !slices.Equal(before, u.list)), nil
}

// apply replaces the file and has the program read it. It reports whether that succeeded. A text that cannot be made of
// these addresses counts as done: only other addresses can help.
func (p *publisher) apply(ctx context.Context) bool {
	text, err := p.render(p.known)
	if err != nil {
		p.report("berth: the template fails with the present addresses: %s; %s stays as it is", p.describe(err), p.path)
		return true
	}
	changed, err := p.replace(text)
	if err != nil {
		p.report("berth: replace %s: %s; trying again", p.path, p.describe(err))
		return false
	}
	if changed {
		p.report("berth: wrote %s: %s", p.path, p.counts())
		p.loaded = false
	}
	if p.loaded || p.reload == nil {
		return true
	}
	// An interrupt does not end the program in the middle.
	if err := p.reload(context.WithoutCancel(ctx)); err != nil {
		p.report("berth: the command of --exec failed: %s; trying again", p.describe(err))
		return false
	}
	p.loaded = true
	return true
}

// counts says how many addresses each endpoint has.
func (p *publisher) counts() string {
	parts := make([]string, len(p.sources))
	for i, s := range p.sources {
		list := p.known[s.name]
		text := wording.Count(len(list), "address")
		if len(list) != 1 {
			text = fmt.Sprintf("%d addresses", len(list))
		}
		healthy := 0
		for j := range list {
			if list[j].healthy() {
				healthy++
			}
		}
		if healthy < len(list) {
			text += fmt.Sprintf(", %d of them healthy", healthy)
		}
		parts[i] = s.name + " has " + text
	}
	return strings.Join(parts, "; ")
}

package suite

import (
	"context"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"
)

// Outcome is how a case ended.
type Outcome string

// The outcomes of a case.
const (
	Passed  Outcome = "passed"
	Failed  Outcome = "failed"
	Skipped Outcome = "skipped" // the machine lacks what the case needs
)

// Values returns all outcomes.
func (Outcome) Values() []Outcome { return []Outcome{Passed, Failed, Skipped} }

// Result is the result of one case.
type Result struct {
	Name     string
	Outcome  Outcome
	Duration time.Duration
	// Messages are the texts that the case logged or failed with, in the order of their arrival.
	Messages []string
}

// grace is how long Run waits for a case, its cleanups included, after the end of the context.
const grace = time.Minute

// Run returns the results of the cases, each as soon as its case has ended. The cases run one after the other, in their
// order; open makes the subject of each.
//
// The context bounds the whole run. When it ends, so does the context of the running case. If that case has not ended a
// minute later, Run gives it up and leaves its goroutine behind. A case that is given up or that never ran has failed.
func Run[S any](ctx context.Context, cases []Case[S], open func(T) S) iter.Seq[Result] {
	return func(yield func(Result) bool) {
		for _, c := range cases {
			result := Result{Name: c.Name, Outcome: Failed}
			if ctx.Err() != nil {
				result.Messages = []string{fmt.Sprintf("not run: %v", context.Cause(ctx))}
			} else {
				result = run(ctx, c.Name, func(t T) { c.Run(t, open(t)) })
			}
			if !yield(result) {
				return
			}
		}
	}
}

// run runs one case.
func run(ctx context.Context, name string, body func(T)) Result {
	began := time.Now()
	lifetime, end := context.WithCancel(ctx)
	defer end()
	r := &reporter{lifetime: lifetime}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.guard(func() { body(r) })
		end()
		for f := r.nextCleanup(); f != nil; f = r.nextCleanup() {
			r.guard(f)
		}
	}()
	select {
	case <-ended:
	case <-ctx.Done():
		limit := time.NewTimer(grace)
		defer limit.Stop()
		select {
		case <-ended:
		case <-limit.C:
			r.Errorf("given up: the case did not end within %v after the end of the run (%v)", grace,
				context.Cause(ctx))
		}
	}
	outcome, messages := r.result()
	return Result{Name: name, Outcome: outcome, Duration: time.Since(began), Messages: messages}
}

// reporter is the T of a case that Run runs.
type reporter struct {
	lifetime context.Context //nolint:containedctx // it is the case's, as that of testing.T

	mu              sync.Mutex
	failed, skipped bool
	messages        []string
	cleanups        []func()
}

var _ T = (*reporter)(nil)

// guard calls a function of the case in a goroutine of its own, because Fatalf and Skipf end the goroutine, and returns
// when that has ended. A panic fails the case, and so does a goroutine that ends by other means.
func (r *reporter) guard(f func()) {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		returned := false
		defer func() {
			fault := recover()
			switch outcome, _ := r.result(); {
			case fault != nil:
				r.Errorf("panic: %v\n%s", fault, debug.Stack())
			case !returned && outcome == Passed:
				r.Errorf("the case ended its goroutine without a result")
			}
		}()
		f()
		returned = true
	}()
	<-ended
}

// nextCleanup removes and returns the last registered cleanup, or nil.
func (r *reporter) nextCleanup() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	last := len(r.cleanups) - 1
	if last < 0 {
		return nil
	}
	f := r.cleanups[last]
	r.cleanups = r.cleanups[:last]
	return f
}

func (r *reporter) result() (Outcome, []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch messages := slices.Clone(r.messages); {
	case r.failed:
		return Failed, messages
	case r.skipped:
		return Skipped, messages
	default:
		return Passed, messages
	}
}

// Helper implements T. Messages of this reporter have no lines of code.
func (r *reporter) Helper() {}

// Context implements T.
func (r *reporter) Context() context.Context { return r.lifetime }

// Cleanup implements T.
func (r *reporter) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// TempDir implements T. The directory's parent is private; programs of other users may enter the directory itself.
func (r *reporter) TempDir() string {
	parent, err := os.MkdirTemp("", "berth-suite-")
	if err != nil {
		r.Fatalf("make temporary directory: %v", err)
	}
	r.Cleanup(func() {
		if err := os.RemoveAll(parent); err != nil {
			r.Errorf("remove temporary directory: %v", err)
		}
	})
	dir := filepath.Join(parent, filepath.Base(parent))
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // its parent is private
		r.Fatalf("make temporary directory: %v", err)
	}
	return dir
}

// Logf implements T.
func (r *reporter) Logf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.messages = append(r.messages, fmt.Sprintf(format, args...))
}

// Errorf implements T.
func (r *reporter) Errorf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = true
}

// Fatalf implements T.
func (r *reporter) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// Skipf implements T.
func (r *reporter) Skipf(format string, args ...any) {
	r.Logf(format, args...)
	r.mu.Lock()
	r.skipped = true
	r.mu.Unlock()
	runtime.Goexit()
}

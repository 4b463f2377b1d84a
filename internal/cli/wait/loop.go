package wait

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/session"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/wording"
)

// Intervals of the loop.
const (
	// idleInterval is the maximum interval between two reads. Some values change with time alone.
	idleInterval = 2 * time.Second
	// minInterval is the default of Loop.MinInterval.
	minInterval = 100 * time.Millisecond
	// outageTimeout is how long the loop retries while no server answers.
	outageTimeout = 30 * time.Second
)

// Loop reads objects until none is open: at the beginning, after each change, and every idleInterval.
type Loop struct {
	Session *session.Session
	// Progress ends with the loop. It is nil if the caller shows the progress.
	Progress *Progress
	// Changes are streams. Each element causes a read. Without streams the loop reads every idleInterval.
	Changes []func(context.Context) client.Changes
	// MinInterval is the minimum interval between two reads, so that a burst of changes costs one read. The default is
	// 100ms.
	MinInterval time.Duration
	// Until, unless zero, is the time of an additional read.
	Until time.Time
	// Read reads the objects and reports whether any is still open. The loop retries an error of an unreachable server
	// for outageTimeout. Any other error ends the loop.
	Read func(context.Context) (open bool, err error)
}

// Run returns nil once Read finds no open object. Otherwise it returns the error of Read or of ctx.
func (l *Loop) Run(ctx context.Context) error {
	if l.Progress != nil {
		defer l.Progress.End()
	}
	wake := make(chan struct{}, 1)
	var followers sync.WaitGroup
	defer followers.Wait()
	following, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, changes := range l.Changes {
		followers.Go(func() {
			for _, err := range changes(following) {
				if err != nil {
					return // Read reports the outage
				}
				select {
				case wake <- struct{}{}:
				default:
				}
			}
		})
	}
	var outage time.Time
	for {
		open, err := l.Read(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil:
			outage = time.Time{}
		case !errors.Is(err, client.ErrUnreachable) && client.StatusOf(err) != http.StatusServiceUnavailable:
			return err
		case outage.IsZero():
			outage = l.Session.Now()
			l.note(session.ErrorText(err) + "; trying again")
		case l.Session.Now().Sub(outage) > outageTimeout:
			return err
		}
		if err == nil && !open {
			return nil
		}
		if err := l.pause(ctx, wake); err != nil {
			return err
		}
	}
}

// pause waits for a change, the end of idleInterval, or the time Until.
func (l *Loop) pause(ctx context.Context, wake <-chan struct{}) error {
	minimum := time.After(cmp.Or(l.MinInterval, minInterval))
	timeout := idleInterval
	if left := l.Until.Sub(l.Session.Now()); !l.Until.IsZero() && left > 0 {
		timeout = min(timeout, left)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-wake:
	case <-time.After(timeout):
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-minimum:
		return nil
	}
}

func (l *Loop) note(text string) {
	if l.Progress != nil {
		l.Progress.Note(text)
		return
	}
	l.Session.Messagef("berth: %s", text)
}

// maxStreams bounds the streams of one loop. With more objects, the loop follows the list of each cluster.
const maxStreams = 8

// ChangesOf returns streams of changes that cover the objects.
func ChangesOf(c *client.Client, names []session.Name) (all []func(context.Context) client.Changes) {
	seen := map[session.Name]bool{}
	for _, n := range names {
		if len(names) > maxStreams {
			n.Name = ""
		}
		if seen[n] {
			continue
		}
		seen[n] = true
		all = append(all, streamOf(c, n))
	}
	return all
}

// streamOf returns the stream of one object, or an empty stream for kinds without one.
func streamOf(c *client.Client, n session.Name) func(context.Context) client.Changes {
	return func(ctx context.Context) client.Changes {
		switch n.Kind {
		case wording.KindService:
			return c.ServiceChanges(ctx, n.Cluster, n.Name)
		case wording.KindJob:
			return c.JobChanges(ctx, n.Cluster, n.Name)
		case wording.KindCron:
			return c.CronChanges(ctx, n.Cluster, n.Name)
		case wording.KindNode:
			return c.NodeChanges(ctx, n.Name)
		case wording.KindTask:
			if parts, ok := cluster.TaskID(n.Name).Parts(); ok {
				return c.TaskChanges(ctx, ownerFilter(parts))
			}
		}
		return func(func(uint64, error) bool) {}
	}
}

// ownerFilter selects the tasks of the owner of a task.
func ownerFilter(p cluster.TaskParts) client.TaskFilter {
	if p.Step == "" {
		return client.TaskFilter{Cluster: p.Cluster, Service: p.Owner, All: true}
	}
	return client.TaskFilter{Cluster: p.Cluster, Job: p.Owner, All: true}
}

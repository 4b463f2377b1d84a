package reports

import (
	"context"
	"errors"
	"time"

	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/transport"
)

// Send reports changes and heartbeats until ctx ends or the session is over, and returns the reason. At most one report
// is under way at a time.
func (r *Reports) Send(ctx context.Context, welcome transport.Welcome) error {
	heartbeat := time.Duration(welcome.Heartbeat)
	for seq := uint64(1); ; seq++ {
		if !r.wait(ctx, r.nextReportDelay(heartbeat)) {
			return ctx.Err()
		}
		tasks, items, facts := r.takeReport()
		report := transport.Report{
			Node: r.Node.Name, Session: welcome.Session, Seq: seq, Tasks: tasks, Facts: facts,
			Stats: r.Stats.Unreported(),
		}
		for i := range tasks {
			tasks[i].Node, tasks[i].Session, tasks[i].Seq = r.Node.Name, welcome.Session, seq
		}
		asked := r.Node.Boot()
		reply, err := r.deliver(ctx, report)
		if err != nil {
			r.requeue(items, facts)
			return err
		}
		if reply.Heartbeat > 0 {
			heartbeat = time.Duration(reply.Heartbeat)
		}
		r.marks.Raise(reply.Token, 0)
		r.marks.RememberServers(reply.Servers)
		r.Stats.NoteReported(report.Stats, false)
		r.settle(items, reply.Refused, asked)
		r.Answered(asked)
	}
}

// defaultHeartbeat applies if the server sends none.
const defaultHeartbeat = 5 * time.Second

// nextReportDelay returns the delay until the next report, a little less than the server expects.
func (r *Reports) nextReportDelay(heartbeat time.Duration) time.Duration {
	if heartbeat <= 0 {
		heartbeat = defaultHeartbeat
	}
	return transport.AlignReport(time.Now(), time.Duration((0.8+0.1*r.Node.Random())*float64(heartbeat)))
}

// wait waits until a report is due and reports false if ctx ended.
func (r *Reports) wait(ctx context.Context, beat time.Duration) bool {
	due := time.NewTimer(beat)
	defer due.Stop()
	var soon <-chan time.Time
	urgentTimer := false
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return true
		case <-soon:
			return true
		case <-r.wake:
		}
		r.mu.Lock()
		urgent, some := r.urgent, len(r.dirty) > 0 || r.facts != nil || r.statsUrgent
		r.mu.Unlock()
		pause := coalesceDelay
		if urgent {
			pause = urgentCoalesceDelay
		}
		if urgent && !urgentTimer || some && soon == nil {
			urgentTimer = urgent
			timer := time.NewTimer(pause)
			defer timer.Stop()
			soon = timer.C
		}
	}
}

// deliver sends one report, under its number, until a server answers or the session is over.
func (r *Reports) deliver(ctx context.Context, report transport.Report) (transport.ReportReply, error) {
	p := r.Node.NewBackoff(node.MinRetryBackoff, maxRetryBackoff)
	for {
		reply, err := r.Source.Report(ctx, report)
		switch {
		case err == nil:
			return reply, nil
		case ctx.Err() != nil:
			return reply, ctx.Err()
		case errors.Is(err, transport.ErrSession), errors.Is(err, transport.ErrElsewhere):
			return reply, err
		}
		r.Node.Logger.Debug("a report was not answered", "seq", report.Seq, "error", err)
		if p.Wait(ctx) != nil {
			return reply, ctx.Err()
		}
	}
}

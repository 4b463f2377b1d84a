package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/sim/ci"
	"github.com/berthd/berth/internal/store"
)

const (
	// sampleInterval is the time between two comparisons of the jobs with what the leader knows.
	sampleInterval = 500 * time.Millisecond
	// reasonLag is the time in which a leader without faults finds the reason of a task that begins to wait, and
	// endLag the time in which it knows the end of a job.
	reasonLag, endLag = time.Second, 10 * time.Second
	// faultyLag replaces both while a server or the store has a fault, or a leader is new.
	faultyLag = 90 * time.Second
	// newLeaderAge is the age from which a leader counts as experienced.
	newLeaderAge = 5 * time.Second
)

// waitsForRetry is the code of tasks that get another attempt after a delay. The leader's reasons lack them, and berth
// explain shows them.
const waitsForRetry cluster.ReasonCode = "retry"

// dayChecker checks that each waiting task of a day's jobs has a reason, and that each job ends as the outcomes of its
// tasks say. The verdicts come from package ci, which knows nothing of the control plane.
type dayChecker struct {
	*observation
	liveness *livenessChecker
	jobs     map[string]*dayJob // by "<cluster>/<name>"
	fair     *fairChecker
	allActed bool
	stats    DayStats
}

// dayJob is what the checker knows of a job.
type dayJob struct {
	record  *cluster.Job // as in the store
	changed bool
	verdict ci.Verdict
	// confirmed says that the leader showed the end of the verdict.
	confirmed bool
	wrong     lapse // the leader shows another state than the verdict
	// unexplained holds the waiting tasks for which the leader gave no reason at the last sample.
	unexplained map[cluster.TaskID]*lapse
}

// lapse is the time since which something is not as it should be: at all, and without a fault that explains it. The
// zero value means that nothing is wrong.
type lapse struct{ since, quiet time.Time }

// exceeds reports whether the lapse takes longer than permitted.
func (l *lapse) exceeds(lag time.Duration) bool {
	return !l.quiet.IsZero() && time.Since(l.quiet) > lag || !l.since.IsZero() && time.Since(l.since) > faultyLag
}

// note records that the lapse is present.
func (l *lapse) note(quiet bool) {
	now := time.Now()
	if l.since.IsZero() {
		l.since = now
	}
	switch {
	case !quiet:
		l.quiet = time.Time{}
	case l.quiet.IsZero():
		l.quiet = now
	}
}

// DayStats counts what a day exercised.
type DayStats struct {
	Jobs, Tasks int // submitted jobs, and tasks of their runs
	// Ends counts the jobs by their last state.
	Ends map[cluster.JobState]int
	// Samples counts the comparisons with the leader, QuietSamples those without a fault of servers or the store, and
	// Leaderless the moments without a leader.
	Samples, QuietSamples, Leaderless int
	// Waits counts the tasks that waited in a sample, by the code of the reason.
	Waits map[cluster.ReasonCode]int
	// LongestUnexplained is the longest time in which a task waited without a reason, without a fault.
	LongestUnexplained time.Duration
	// Attempts counts outcomes, by state. Reruns counts attempts after a start of their task.
	Attempts map[cluster.State]int
	Reruns   int
	// Shares are what each user of the fair queue held in each hour, as a part of the fair share. It is not a number in
	// an hour in which no task of the user waited at some moment.
	Shares map[string][]float64
}

// newDayChecker returns the checker of a day with so many hours of fair shares.
func newDayChecker(c *checker, hours int) *dayChecker {
	return &dayChecker{
		fair:        newFairChecker(c.observation, hours),
		observation: c.observation, liveness: c.liveness, jobs: map[string]*dayJob{},
		stats: DayStats{
			Ends: map[cluster.JobState]int{}, Waits: map[cluster.ReasonCode]int{}, Attempts: map[cluster.State]int{},
		},
	}
}

// applyJob processes the record of a job. The control plane deletes a job only after its end.
func (v *dayChecker) applyJob(name string, c *store.Change) {
	if in, _, _ := strings.Cut(name, "/"); !ci.Owns(in) {
		return
	}
	if c.Deleted {
		delete(v.jobs, name)
		return
	}
	j := v.jobs[name]
	if j == nil {
		j = &dayJob{unexplained: map[cluster.TaskID]*lapse{}}
		v.jobs[name] = j
		v.stats.Jobs++
	}
	now, err := store.Decode[cluster.Job](c.Value)
	if err != nil {
		return
	}
	if j.record == nil || j.record.Generation != now.Generation {
		for i := range now.Steps {
			v.stats.Tasks += now.Steps[i].Count
		}
	}
	if now.Deleted && j.record != nil && !j.record.Deleted {
		v.judge(j)
		if !j.verdict.Ended() {
			v.breach("job-end", "%s is deleted before its end: %+v", name, j.verdict)
		}
		v.stats.Ends[j.verdict.State]++
	}
	j.record, j.changed, j.confirmed = now, true, false
}

// applyOutcome processes a new outcome of an attempt.
func (v *dayChecker) applyOutcome(a *attemptHistory, o *cluster.Outcome) {
	if in, _, _ := strings.Cut(a.job, "/"); !ci.Owns(in) {
		return
	}
	v.stats.Attempts[o.State]++
	for other := range v.tasks[a.task] { // order-free: any suffices
		if other.number < a.number && other.starts > 0 && a.starts > 0 {
			v.stats.Reruns++
			return
		}
	}
}

// judge computes the verdict of a job anew.
func (v *dayChecker) judge(j *dayJob) { j.verdict, j.changed = ci.Judge(j.record, v.attemptsOf), false }

// attemptsOf returns the attempts of a task in their order.
func (v *dayChecker) attemptsOf(task cluster.TaskID) (outcomes []*cluster.Outcome, live bool) {
	for a := range v.tasks[task] { // order-free: sorted next
		switch {
		case a.outcome != nil:
			outcomes = append(outcomes, a.outcome)
		case a.isOpen():
			live = true
		}
	}
	slices.SortFunc(outcomes, func(a, b *cluster.Outcome) int { return cmp.Compare(a.Attempt, b.Attempt) })
	return outcomes, live
}

// lastFailure returns when the last attempt was placed of those that failed a task of the job for good, zero without
// such a task.
func (v *dayChecker) lastFailure(job *cluster.Job) (last time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range job.Steps {
		for k := range job.Steps[i].Count {
			id := cluster.JobTask(job.Cluster, job.Name, job.Generation, job.Steps[i].Name, k)
			outcomes, live := v.attemptsOf(id)
			if n := len(outcomes); n > 0 && !live && ci.HasFailed(&job.Steps[i], outcomes, job.Retried.All) &&
				outcomes[n-1].Placed.After(last) {
				last = outcomes[n-1].Placed
			}
		}
	}
	return last
}

// openJobs returns the jobs whose end the leader has not shown, by name, with up-to-date verdicts.
func (v *dayChecker) openJobs() []string {
	v.mu.Lock()
	defer v.mu.Unlock()
	for job := range v.changedJobs { // order-free: each by itself
		if j := v.jobs[job]; j != nil {
			j.changed, j.confirmed = true, false
		}
	}
	clear(v.changedJobs)
	var open []string
	for name, j := range v.jobs { // order-free: sorted next
		if j.record == nil || j.record.Deleted {
			continue
		}
		if j.changed {
			v.judge(j)
		}
		if !j.confirmed {
			open = append(open, name)
		}
	}
	slices.Sort(open)
	return open
}

// waitingOf returns the number of tasks of a user of the fair queue that wait, by the last sample.
func (v *dayChecker) waitingOf(u *ci.FairUser) (waiting int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, j := range v.jobs { // order-free: a sum
		if j.isOf(u) {
			waiting += len(j.verdict.Waiting)
		}
	}
	return waiting
}

// isOf reports whether the job is one of a user of the fair queue.
func (j *dayJob) isOf(u *ci.FairUser) bool {
	return j.record != nil && j.record.Cluster == u.Cluster && j.record.SubmittedBy == u.Name
}

// sampleShares lets the checker of fair shares take a sample.
func (v *dayChecker) sampleShares() {
	v.mu.Lock()
	defer v.mu.Unlock()
	waiting := make([]int, len(v.fair.users))
	for _, j := range v.jobs { // order-free: sums
		for i := range v.fair.users {
			if len(j.verdict.Waiting) > 0 && j.isOf(&v.fair.users[i].FairUser) {
				waiting[i] += len(j.verdict.Waiting)
			}
		}
	}
	v.fair.sample(waiting)
}

func (v *dayChecker) noteLeaderless() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.stats.Leaderless++
}

// jobViews is what the leader shows of jobs.
type jobViews interface {
	// Reason returns why a task waits, as the leader's last decision said. Jobs are "<cluster>/<name>".
	Reason(task cluster.TaskID) (code cluster.ReasonCode, text string)
	// Explain returns why a task that ended waits for its next attempt, as berth explain shows it. It takes longer.
	Explain(job string, task cluster.TaskID) string
	// Status returns the state of a job; ok is false if the job is not known.
	Status(job string) (s api.JobStatus, ok bool)
}

// checkJobs compares jobs with what the leader shows of them.
func (v *dayChecker) checkJobs(names []string, views jobViews) {
	quiet := v.noteSample()
	for _, name := range names {
		v.mu.Lock()
		j := v.jobs[name]
		if j == nil {
			v.mu.Unlock()
			continue
		}
		waiting, ended, changed := j.verdict.Waiting, j.verdict.Ended(), j.changed
		v.mu.Unlock()
		v.checkReasons(name, j, waiting, views, quiet)
		if ended && !changed {
			v.checkShownEnd(name, j, views, quiet)
		}
	}
}

// noteSample counts a sample, and reports whether no fault of servers or the store explains a lapse.
func (v *dayChecker) noteSample() (quiet bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	quiet = !v.liveness.quietSince.IsZero() && time.Since(v.liveness.quietSince) > newLeaderAge &&
		len(v.leaders) > 0 && time.Since(v.leaders[len(v.leaders)-1].at) > newLeaderAge
	v.stats.Samples++
	if quiet {
		v.stats.QuietSamples++
	}
	return quiet
}

// checkReasons checks that the leader gives a reason for each waiting task of a job.
func (v *dayChecker) checkReasons(name string, j *dayJob, waiting []cluster.TaskID, views jobViews, quiet bool) {
	unexplained := map[cluster.TaskID]*lapse{}
	for _, task := range waiting {
		code, text := views.Reason(task)
		if text == "" {
			text = views.Explain(name, task)
			code = waitsForRetry
		}
		v.mu.Lock()
		if text != "" {
			v.stats.Waits[code]++
			v.mu.Unlock()
			continue
		}
		l := j.unexplained[task]
		if l == nil {
			l = new(lapse)
		}
		l.note(quiet)
		unexplained[task] = l
		if !l.quiet.IsZero() {
			v.stats.LongestUnexplained = max(v.stats.LongestUnexplained, time.Since(l.quiet))
		}
		if l.exceeds(reasonLag) {
			v.breach("reason", "%s waits without a reason since %v", task, l.since.Sub(v.began))
		}
		v.mu.Unlock()
	}
	j.unexplained = unexplained
}

// checkShownEnd checks that the leader shows the end of a job as the outcomes of its tasks say.
func (v *dayChecker) checkShownEnd(name string, j *dayJob, views jobViews, quiet bool) {
	status, ok := views.Status(name)
	v.mu.Lock()
	defer v.mu.Unlock()
	want := j.verdict
	shown := ci.Verdict{State: status.State, Counts: ci.Counts{
		Total: status.Total, Waiting: status.Pending, Running: status.Running, Succeeded: status.Succeeded,
		Failed: status.Failed, Cancelled: status.Cancelled,
	}}
	if ok && shown.State == want.State && shown.Counts == want.Counts {
		j.confirmed, j.wrong = true, lapse{}
		return
	}
	j.wrong.note(quiet)
	if j.wrong.exceeds(endLag) {
		v.breach("job-end", "%s is %s with %+v, and by its outcomes it is %s with %+v", name, shown.State, shown.Counts,
			want.State, want.Counts)
		j.confirmed = true // one breach suffices
	}
}

func (v *dayChecker) noteLastAct() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.allActed = true
}

// isDone reports whether the users have acted for the last time and all jobs have ended.
func (v *dayChecker) isDone() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.allActed && v.firstOpen() == ""
}

// firstOpen describes the first job that has not ended, or whose end the leader has not shown.
func (v *dayChecker) firstOpen() string {
	for _, name := range slices.Sorted(maps.Keys(v.jobs)) {
		if j := v.jobs[name]; j.record != nil && !j.record.Deleted && (j.changed || !j.confirmed) {
			return fmt.Sprintf("%s is %s: %+v; it waits for %v", name, j.verdict.State, j.verdict.Counts,
				j.verdict.Waiting)
		}
	}
	return ""
}

// checkEnd checks at the end of the day that all jobs have ended, and counts their states.
func (v *dayChecker) checkEnd() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if open := v.firstOpen(); !v.allActed || open != "" {
		v.breach("job-late", "the day is over, all users have acted: %t; %s", v.allActed, open)
	}
}

// summary returns the counts of the day.
func (v *dayChecker) summary() DayStats {
	v.mu.Lock()
	defer v.mu.Unlock()
	s := v.stats
	s.Ends = maps.Clone(s.Ends)
	s.Shares = v.fair.ratios
	for _, j := range v.jobs { // order-free: counts
		if j.record != nil && !j.record.Deleted {
			s.Ends[j.verdict.State]++
		}
	}
	return s
}

package attempt

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

var noon = Now{Boot: time.Hour, Wall: time.Unix(1_800_000_000, 0)}

func TestUpdate(t *testing.T) {
	stop := &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonRollout, Message: "first"}
	ended := &cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonEnded, Ended: true}
	base := cluster.Desired{UUID: "u", Token: cluster.Token{Generation: 2, Incarnation: 2, Epoch: 2}, Stop: stop}
	for name, test := range map[string]struct {
		change func(*cluster.Desired)
		rev    uint64
		taken  bool
		want   cluster.Stop
	}{
		"the same again":    {func(*cluster.Desired) {}, 5, false, *stop},
		"an older revision": {func(*cluster.Desired) {}, 4, false, *stop},
		"a newer revision":  {func(*cluster.Desired) {}, 6, true, *stop},
		"an older epoch":    {func(d *cluster.Desired) { d.Token.Epoch = 1 }, 9, false, *stop},
		"an older incarnation": {func(d *cluster.Desired) {
			d.Token.Incarnation, d.Token.Epoch = 1, 9
		}, 9, false, *stop},
		"an older generation": {func(d *cluster.Desired) {
			d.Token = cluster.Token{Generation: 1, Incarnation: 9}
		}, 9, false, *stop},
		"a newer epoch, rev begins": {func(d *cluster.Desired) { d.Token.Epoch = 3 }, 1, true, *stop},
		"another attempt":           {func(d *cluster.Desired) { d.UUID = "v" }, 9, false, *stop},
		"a stop is never taken back": {
			func(d *cluster.Desired) { d.Stop = nil }, 6, true, *stop,
		},
		"the first cause is kept": {
			func(d *cluster.Desired) { d.Stop = ended }, 6, true,
			cluster.Stop{Class: cluster.StopMandatory, Reason: cluster.ReasonRollout, Message: "first", Ended: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := New(base, 5, "boot")
			d := base
			test.change(&d)
			if taken := r.Update(&d, test.rev); taken != test.taken {
				t.Errorf("taken %v, want %v", taken, test.taken)
			}
			if got := *r.Desired.Stop; got != test.want {
				t.Errorf("stop %+v, want %+v", got, test.want)
			}
		})
	}
}

// running returns a batch attempt with two running containers, the second started after the first.
func running(t *testing.T, restart cluster.RestartMode) (*Record, *cluster.TaskDefinition) {
	t.Helper()
	def := &cluster.TaskDefinition{Containers: []cluster.Container{{Name: "a"}, {Name: "b"}}}
	def.Restart.Mode = restart
	r := New(cluster.Desired{UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindJob}}, 1, "boot")
	r.Next(def, noon)
	r.Admitted("x", def)
	r.WasPrepared(0)
	r.WasPrepared(1)
	r.PortsProbed()
	r.Next(def, noon)
	r.BarrierPassed(noon.Boot)
	for i := range 2 {
		if s := r.Next(def, noon); s.Do != Launch || s.Container != i {
			t.Fatalf("want the launch of %d, got %+v", i, s)
		}
		r.WasStarted(i, executor.Process{Pid: 1}, noon)
	}
	return r, def
}

// A batch attempt that fails while a stop arrives keeps its own end, and does not restart.
func TestStopDuringAnEndOfItsOwn(t *testing.T) {
	r, def := running(t, cluster.RestartAlways)
	r.HasExited("u-0-1", cluster.Exit{Code: 3}, noon)
	r.Next(def, noon)
	d := r.Desired
	d.Stop = &cluster.Stop{Reason: cluster.ReasonCancelled}
	r.Update(&d, 2)
	r.HasExited("u-1-1", cluster.Exit{Code: 143, Signal: 15}, noon)
	r.Next(def, noon)
	r.Closed("")
	if o := r.Observed(def); o.State != cluster.StateFailed || o.Reason != cluster.ReasonExit {
		t.Errorf("ended as %s (%s), want failed (exit)", o.State, o.Reason)
	}
}

func TestRunIDFits(t *testing.T) {
	const uuid = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789ab" // the longest valid UUID
	if id := RunID(uuid, cluster.MaxContainers, 1_000_000); len(id) > 76 {
		t.Errorf("%s has %d bytes, at most 76 are allowed", id, len(id))
	}
}

// Long backoffs, and a sliding limit of restarts, on the boot-time clock.
func TestRestartsSlideOutOfTheWindow(t *testing.T) {
	def := &cluster.TaskDefinition{Containers: []cluster.Container{{Name: "a"}}}
	def.Restart = cluster.Restart{
		Limit: 2, Window: cluster.Duration(10 * time.Minute),
		Delay: cluster.Duration(time.Second),
	}
	r := New(cluster.Desired{UUID: "u", Owner: cluster.OwnerRef{Kind: cluster.KindService}}, 1, "boot")
	now := noon
	for round := 1; round <= 20; round++ {
		if round == 1 {
			r.Next(def, now)
			r.Admitted("x", def)
		}
		r.WasPrepared(0)
		r.PortsProbed()
		if s := r.Next(def, now); s.Do != Launch {
			t.Fatalf("round %d: want a launch, got %+v", round, s)
		}
		r.WasStarted(0, executor.Process{}, now)
		now.Boot += 6 * time.Minute // never three within ten minutes
		r.HasExited(RunID("u", 0, round), cluster.Exit{Code: 1}, now)
		if s := r.Next(def, now); s.Do != Tail {
			t.Fatalf("round %d: want to read the end of its output, got %+v", round, s)
		}
		r.Tailed("")
		s := r.Next(def, now)
		if s.Do != Wait || r.Phase != PhaseBackoff {
			t.Fatalf("round %d: in %s, want back-off", round, r.Phase)
		}
		now.Boot = s.At
		if s = r.Next(def, now); s.Do != Prepare {
			t.Fatalf("round %d: want to prepare again, got %+v", round, s)
		}
	}
}

func TestReportsAreBounded(t *testing.T) {
	r, def := running(t, "")
	r.HasExited("u-0-1", cluster.Exit{Code: 3}, noon)
	r.HasExited("u-1-1", cluster.Exit{Code: 3}, noon)
	r.Next(def, noon)
	r.Closed(strings.Repeat("é\xff", cluster.MaxLogTail))
	r.Result.Message = strings.Repeat("é", 10_000)
	o := r.Observed(def)
	if len(o.LogTail) > cluster.MaxLogTail || !utf8.ValidString(o.LogTail) || !strings.HasSuffix(o.LogTail, "é?") {
		t.Errorf("tail of %d bytes, valid %v", len(o.LogTail), utf8.ValidString(o.LogTail))
	}
	if len(o.Message) > 1010 || !utf8.ValidString(o.Message) {
		t.Errorf("message of %d bytes", len(o.Message))
	}
}

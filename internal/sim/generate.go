package sim

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// generator makes a story up.
type generator struct {
	random *rand.Rand
	story  *Story
	length time.Duration
}

// Generate returns the story of a seed. Equal seeds give equal stories. Every story has users who keep changing
// services. Its faults follow a few themes, so that related faults coincide.
func Generate(seed uint64) *Story {
	a := &generator{random: rand.New(rand.NewPCG(seed, 42)), story: &Story{Seed: seed}}
	s := a.story
	switch n := a.random.IntN(100); {
	case n < 45:
		s.Servers = 1
	case n < 88:
		s.Servers = 3
	default:
		s.Servers = 5
	}
	switch n := a.random.IntN(200); {
	case n == 0:
		s.Nodes = 100 + a.random.IntN(150)
	case n < 20:
		s.Nodes = 6 + a.random.IntN(5)
	default:
		s.Nodes = 3 + a.random.IntN(3)
	}
	s.Consul = a.random.IntN(8) == 0
	a.length = time.Duration(40+a.random.IntN(80)) * time.Second
	if a.random.IntN(5) == 0 {
		a.length += time.Duration(a.random.IntN(300)) * time.Second
	}
	a.addUsers()
	themes := []func(){
		a.addServerFaults,
		a.addServerFaults,
		a.addEngineFaults,
		a.addEngineFaults,
		a.addNetworkFaults,
		a.addNetworkFaults,
		a.addAgentFaults,
		a.addAgentFaults,
		a.addMachineFaults,
		a.addClockJumps,
		a.addFalseReports,
		a.addForeignWrites,
		a.addRestores,
		a.addHandovers,
		a.addSilence,
		a.addDomainChanges,
		a.addBarrierRaces,
		a.addIntentRaces,
		a.addLosses,
	}
	for range 1 + a.random.IntN(3) {
		themes[a.random.IntN(len(themes))]()
	}
	a.random = rand.New(rand.NewPCG(seed, 43)) // later themes do not change the earlier part of a seed's story
	for _, theme := range []func(){a.addRollouts, a.addDaemons, a.addLoads, a.addCrons} {
		if a.random.IntN(3) == 0 {
			theme()
		}
	}
	a.random = rand.New(rand.NewPCG(seed, 44))
	if a.random.IntN(3) == 0 {
		a.addCommitFaults()
	}
	a.random = rand.New(rand.NewPCG(seed, 45))
	if a.random.IntN(3) == 0 {
		a.addDepartures()
	}
	a.random = rand.New(rand.NewPCG(seed, 46))
	if a.random.IntN(3) == 0 {
		a.addRebalancings()
	}
	a.random = rand.New(rand.NewPCG(seed, 47))
	if a.random.IntN(6) == 0 {
		a.addSchedulers()
	}
	a.random = rand.New(rand.NewPCG(seed, 48))
	if a.random.IntN(6) == 0 && !s.Has(Scheduler) {
		a.addRecordWriters()
	}
	s.sort()
	return s
}

func (a *generator) add(at time.Duration, f Fault, target string, length time.Duration, arg string) {
	a.story.Events = append(a.story.Events, Event{
		At: at.Truncate(time.Millisecond), Fault: f, Target: target, For: length.Truncate(time.Millisecond), Arg: arg,
	})
}

// randomTime picks a time of the story.
func (a *generator) randomTime() time.Duration {
	return 2*time.Second + time.Duration(a.random.Int64N(int64(a.length)))
}

// span picks a length: mostly short, now and then long.
func (a *generator) span(short, long time.Duration) time.Duration {
	if a.random.IntN(4) == 0 {
		return time.Duration(a.random.Int64N(int64(long)))
	}
	return time.Duration(a.random.Int64N(int64(short)))
}

func (a *generator) server() string { return name("s", 1+a.random.IntN(a.story.Servers)) }
func (a *generator) node() string   { return name("n", 1+a.random.IntN(min(a.story.Nodes, 10))) }

// addUsers act from the first second on.
func (a *generator) addUsers() {
	r := a.random
	a.add(time.Second, User, "web", 0, fmt.Sprintf("scale %d", 1+r.IntN(4)))
	a.add(1200*time.Millisecond, User, "api", 0, fmt.Sprintf("scale %d", 1+r.IntN(3)))
	a.add(1400*time.Millisecond, User, "disk", 0, fmt.Sprintf("scale %d", r.IntN(4)))
	a.add(1600*time.Millisecond, User, "batch", 0, fmt.Sprintf("submit %d", 1+r.IntN(8)))
	for range 2 + r.IntN(8) {
		service := []string{"web", "web", "api", "disk"}[r.IntN(4)]
		versions := map[string]int{"web": 3, "api": 2, "disk": 2}[service]
		switch r.IntN(12) {
		case 0, 1, 2:
			a.add(a.randomTime(), User, service, 0, fmt.Sprintf("scale %d", r.IntN(4)))
		case 3, 4:
			a.add(a.randomTime(), User, service, 0, fmt.Sprintf("roll %d", 1+r.IntN(versions)))
		case 5:
			a.add(a.randomTime(), User, service, 0, []string{"delete", "stop"}[r.IntN(2)])
		case 6, 7, 8:
			a.add(a.randomTime(), User, []string{"batch", "nightly"}[r.IntN(2)], 0,
				fmt.Sprintf("%s %d", []string{"submit", "graph", "submit3"}[r.IntN(3)], 1+r.IntN(6)))
		case 9:
			a.add(a.randomTime(), User, []string{"batch", "nightly"}[r.IntN(2)], 0, "cancel")
		case 10:
			a.add(a.randomTime(), User, a.node(), 0, []string{"cordon", "drain", "uncordon"}[r.IntN(3)])
		default:
			a.add(a.randomTime(), User, "batch", 0, fmt.Sprintf("slow %d", 1+r.IntN(2)))
		}
	}
}

func (a *generator) addServerFaults() {
	for range 1 + a.random.IntN(4) {
		switch a.random.IntN(4) {
		case 0, 1:
			a.add(a.randomTime(), ServerCrash, a.server(), a.span(4*time.Second, time.Minute), "")
		case 2:
			a.add(a.randomTime(), ServerPause, a.server(), a.span(8*time.Second, 40*time.Second), "")
		default:
			a.add(a.randomTime(), Lag, a.server(), a.span(20*time.Second, time.Minute),
				fmt.Sprint(time.Duration(1+a.random.IntN(8))*time.Second))
		}
	}
}

func (a *generator) addEngineFaults() {
	for range 1 + a.random.IntN(4) {
		where := a.server()
		if a.random.IntN(2) == 0 {
			where = "db"
		}
		switch a.random.IntN(10) {
		case 0:
			a.add(a.randomTime(), EngineCrash, "db", a.span(3*time.Second, 20*time.Second), "")
		case 1:
			a.add(a.randomTime(), EngineFull, "db", a.span(5*time.Second, time.Minute), "")
		case 2:
			a.add(a.randomTime(), EngineCompact, "db", 0, "")
		case 3:
			a.add(a.randomTime(), EngineSlow, where, a.span(20*time.Second, time.Minute),
				fmt.Sprint(time.Duration(100+a.random.IntN(2000))*time.Millisecond))
		case 4:
			a.add(a.randomTime(), EngineStall, "db", a.span(40*time.Second, 100*time.Second), "")
		case 5, 6:
			a.add(a.randomTime(), EngineDeaf, where, a.span(20*time.Second, time.Minute), "")
		default:
			a.add(a.randomTime(), EngineLate, where, a.span(30*time.Second, time.Minute), "")
		}
	}
}

func (a *generator) addNetworkFaults() {
	for range 2 + a.random.IntN(5) {
		from, to := a.node(), a.server()
		switch a.random.IntN(6) {
		case 0:
			from, to = a.server(), a.server()
		case 1:
			from, to = a.server(), "db"
		}
		link := from + "-" + to
		switch a.random.IntN(4) {
		case 0:
			link = from + ">" + to
		case 1:
			link = to + ">" + from
		}
		if a.random.IntN(3) == 0 {
			a.add(a.randomTime(), Noise, link, a.span(time.Minute, 2*time.Minute), "")
			continue
		}
		a.add(a.randomTime(), Cut, link, a.span(30*time.Second, 2*time.Minute), "")
	}
}

func (a *generator) addAgentFaults() {
	for range 1 + a.random.IntN(5) {
		switch a.random.IntN(8) {
		case 0, 1, 2:
			a.add(a.randomTime(), AgentCrash, a.node(), a.span(5*time.Second, 100*time.Second), "")
		case 3:
			a.add(a.randomTime(), Kill, a.node(), 0, "")
		case 4, 5:
			a.add(a.randomTime(), Trouble, a.node(), a.span(20*time.Second, time.Minute), "")
		case 6:
			a.add(a.randomTime(), DiskFails, a.node(), a.span(10*time.Second, time.Minute), "")
		default:
			a.add(a.randomTime(), Wipe, a.node(), a.span(5*time.Second, time.Minute), "")
		}
	}
}

func (a *generator) addMachineFaults() {
	for range 1 + a.random.IntN(3) {
		a.add(a.randomTime(), []Fault{Reboot, Reboot, Replace}[a.random.IntN(3)], a.node(),
			a.span(20*time.Second, 100*time.Second), "")
	}
}

func (a *generator) addClockJumps() {
	for range 1 + a.random.IntN(3) {
		by := time.Duration(1+a.random.IntN(600)) * time.Second
		switch a.random.IntN(3) {
		case 0:
			a.add(a.randomTime(), WallJump, a.server(), 0, by.String())
		case 1:
			a.add(a.randomTime(), WallJump, a.server(), 0, (-by).String())
		default:
			a.add(a.randomTime(), BootJump, []string{a.server(), a.node()}[a.random.IntN(2)], 0, by.String())
		}
	}
}

func (a *generator) addFalseReports() {
	a.add(a.randomTime(), Lie, a.node(), a.span(30*time.Second, time.Minute),
		[]string{lieForeign, lieForeign, lieRepeat, lieGone}[a.random.IntN(4)])
}

// addForeignWrites overwrites records that only Berth may write. A restarted server then has no other source.
func (a *generator) addForeignWrites() {
	for range 1 + a.random.IntN(3) {
		at := a.randomTime()
		a.add(at, Foreign, a.node(), 0, []string{"", "both", "status", "delete", "edit"}[a.random.IntN(5)])
		if a.random.IntN(2) == 0 {
			for i := range a.story.Servers {
				a.add(at+50*time.Millisecond, ServerCrash, name("s", i+1), time.Second, "")
			}
		}
	}
}

func (a *generator) addRestores() {
	if a.random.IntN(2) == 0 {
		return
	}
	at := a.randomTime()
	a.add(at/2, Save, "db", 0, "")
	a.add(at, Restore, "db", 0, []string{"", "raw"}[a.random.IntN(2)])
}

// addHandovers changes the leader while its writes are under way.
func (a *generator) addHandovers() {
	for range 1 + a.random.IntN(2) {
		at, who := a.randomTime(), a.server()
		a.add(at, EngineLate, who, 10*time.Second, "")
		a.add(at+a.span(5*time.Second, 8*time.Second), []Fault{ServerPause, ServerCrash}[a.random.IntN(2)], who,
			a.span(15*time.Second, 40*time.Second), "")
		other := a.server()
		a.add(at, Lag, other, a.span(20*time.Second, 30*time.Second),
			fmt.Sprint(time.Duration(2+a.random.IntN(8))*time.Second))
		a.add(at+time.Second, User, "batch", 0, fmt.Sprintf("submit %d", 1+a.random.IntN(8)))
	}
}

// addBarrierRaces cancels a job while its attempts reach their start barrier, at servers that receive the cancellation
// late.
func (a *generator) addBarrierRaces() {
	for range 1 + a.random.IntN(3) {
		at := a.randomTime()
		a.add(at, Lag, a.server(), a.span(20*time.Second, 40*time.Second),
			fmt.Sprint(time.Duration(1+a.random.IntN(5))*time.Second))
		a.add(at+time.Second, User, "batch", 0, fmt.Sprintf("submit2 %d", 1+a.random.IntN(4)))
		a.add(at+time.Second+a.span(4*time.Second, 8*time.Second), User, "batch", 0, "cancel")
	}
}

// addIntentRaces kills agents between the start of a program and its record.
func (a *generator) addIntentRaces() {
	node, at := a.node(), a.randomTime()
	a.add(at, Trouble, node, 20*time.Second, "late-start")
	a.add(at+500*time.Millisecond, User, "batch", 0, fmt.Sprintf("submit %d", 2+a.random.IntN(6)))
	a.add(at+time.Second+a.span(5*time.Second, 8*time.Second), AgentCrash, node, a.span(3*time.Second, 20*time.Second),
		"")
}

// addLosses breaks machines, and the operator declares them gone.
func (a *generator) addLosses() {
	node, at := a.node(), a.randomTime()
	a.add(at, Replace, node, 30*time.Second+a.span(30*time.Second, 2*time.Minute), "")
	a.add(at+a.span(20*time.Second, 25*time.Second), User, node, 0, "gone")
}

// addDomainChanges gives a node to another domain, and sometimes back.
func (a *generator) addDomainChanges() {
	node := a.node()
	at := a.randomTime()
	a.add(at, User, node, 0, "claim")
	a.add(at+a.span(time.Second, 10*time.Second), User, otherJob, 0, fmt.Sprintf("submit2 %d", 1+a.random.IntN(4)))
	a.add(a.randomTime(), User, otherJob, 0, fmt.Sprintf("submit %d", 1+a.random.IntN(4)))
	if a.random.IntN(2) == 0 {
		a.add(a.randomTime(), User, node, 0, "unclaim")
	}
}

// addSilence makes nodes silent for as long as the limits of their tasks' classes.
func (a *generator) addSilence() {
	node := a.node()
	at := a.randomTime()
	length := 70*time.Second + a.span(time.Minute, 5*time.Minute)
	if a.random.IntN(2) == 0 {
		a.add(at, AgentCrash, node, length, "")
		return
	}
	for i := range a.story.Servers {
		a.add(at, Cut, node+"-"+name("s", i+1), length, "")
	}
}

// addCommitFaults kills servers at a moment of a write.
func (a *generator) addCommitFaults() {
	r := a.random
	for range 1 + r.IntN(3) {
		kind, moment := []string{"plan", "state", "status", "attempt", planDeletion}[r.IntN(5)],
			[]string{crashBefore, crashAfter, crashSeen}[r.IntN(3)]
		if r.IntN(8) == 0 {
			kind, moment = "plan", crashSent
		}
		a.add(a.randomTime(), CrashAt, a.server(), a.span(3*time.Second, 20*time.Second),
			fmt.Sprintf("%s %s %d", kind, moment, 1+r.IntN(3)))
	}
}

// addRollouts rolls out good and bad versions of a service with canaries, by users who promote, undo and replace them.
func (a *generator) addRollouts() {
	r := a.random
	a.add(1800*time.Millisecond, User, "shop", 0, fmt.Sprintf("scale %d", 2+r.IntN(4)))
	for range 2 + r.IntN(5) {
		version := []int{1, 2, badVersion}[r.IntN(3)]
		switch r.IntN(10) {
		case 0, 1, 2, 3:
			a.add(a.randomTime(), User, []string{"shop", "shop", "web"}[r.IntN(3)], 0, fmt.Sprintf("roll %d", version))
		case 8:
			a.add(a.randomTime(), User, []string{"shop", "web"}[r.IntN(2)], 0, "restart")
		case 9:
			a.add(a.randomTime(), User, "shop", 0, fmt.Sprintf("undo %d", 1+r.IntN(2)))
		case 4:
			a.add(a.randomTime(), User, "shop", 0, fmt.Sprintf("scale %d", 1+r.IntN(5)))
		case 5:
			at := a.randomTime()
			a.add(at, User, "shop", 0, "pause")
			a.add(at+a.span(20*time.Second, time.Minute), User, "shop", 0, "resume")
		default:
			a.add(a.randomTime(), User, "shop", 0, "promote")
		}
	}
}

// addDepartures adds nodes that evict their tasks, and a job that preempts others.
func (a *generator) addDepartures() {
	r := a.random
	for range 1 + r.IntN(4) {
		switch r.IntN(4) {
		case 0:
			a.add(a.randomTime(), User, a.node(), 0, "uncordon")
		case 1:
			a.add(a.randomTime(), User, a.node(), 0, "evict")
		default:
			a.add(a.randomTime(), User, "vip", 0, fmt.Sprintf("urgent %d", 1+r.IntN(4)))
		}
	}
}

// addDaemons adds a service that runs on every node, and nodes that take no new tasks.
func (a *generator) addDaemons() {
	r := a.random
	a.add(1900*time.Millisecond, User, "logd", 0, "scale 0")
	for range 1 + r.IntN(3) {
		switch r.IntN(3) {
		case 0:
			a.add(a.randomTime(), User, "logd", 0, fmt.Sprintf("roll %d", 1+r.IntN(2)))
		case 1:
			a.add(a.randomTime(), User, a.node(), 0, []string{"cordon", "drain"}[r.IntN(2)])
		default:
			a.add(a.randomTime(), AgentCrash, a.node(), a.span(30*time.Second, 3*time.Minute), "")
		}
	}
}

// addLoads adds a service whose count follows external measurements, and nodes that are short of memory.
func (a *generator) addLoads() {
	r := a.random
	a.add(1700*time.Millisecond, User, "auto", 0, "scale 2")
	for range 2 + r.IntN(4) {
		a.add(a.randomTime(), Load, "auto", 0, []string{"5", "18", "33", "49", "100", "fail"}[r.IntN(6)])
	}
	for range r.IntN(3) {
		a.add(a.randomTime(), Pressure, a.node(), a.span(20*time.Second, time.Minute), "")
	}
}

// addCrons adds a cron whose moments servers miss now and then.
func (a *generator) addCrons() {
	a.add(2*time.Second, User, "minutely", 0, "tick")
	if a.random.IntN(3) == 0 {
		a.add(a.randomTime(), User, "minutely", 0, "suspend")
		a.add(a.randomTime(), User, "minutely", 0, "tick")
	}
	if a.random.IntN(2) == 0 {
		a.add(a.randomTime(), ServerCrash, a.server(), a.span(20*time.Second, 2*time.Minute), "")
	}
}

package sim

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/berthd/berth/internal/sim/ci"
)

// longestDayFault bounds the faults of a day of CI.
const longestDayFault = 4 * time.Minute

// DayStory returns the faults of a day of CI, or of a part of one. They have ended once no more jobs arrive. Services
// run beside the jobs, and their users change them now and then.
func DayStory(day *ci.Config) *Story {
	a := &generator{
		random: rand.New(rand.NewPCG(day.Seed, 0xda1)),
		story:  &Story{Seed: day.Seed, Servers: 3, Nodes: 20 + fairNodes},
		length: day.Arrivals() - longestDayFault,
	}
	a.add(time.Second, User, "web", 0, "scale 4")
	a.add(1200*time.Millisecond, User, "api", 0, "scale 3")
	a.add(1400*time.Millisecond, User, "disk", 0, "scale 3")
	a.add(1600*time.Millisecond, User, "logd", 0, "scale 0")
	for range 1 + int(a.length/time.Hour) {
		a.addHourOfFaults()
	}
	a.story.sort()
	return a.story
}

// addHourOfFaults adds the faults of an average hour, at random times of the story.
func (a *generator) addHourOfFaults() {
	r := a.random
	for range 4 { // machines die and return, some without their disks
		a.add(a.randomTime(), []Fault{Reboot, Reboot, Replace}[r.IntN(3)], a.anyNode(),
			40*time.Second+a.span(3*time.Minute, 3*time.Minute), "")
	}
	for range 6 {
		a.add(a.randomTime(), AgentCrash, a.anyNode(), time.Second+a.span(10*time.Second, 2*time.Minute), "")
	}
	for range 3 {
		a.add(a.randomTime(), ServerCrash, leaderTarget, 2*time.Second+a.span(5*time.Second, time.Minute), "")
	}
	a.add(a.randomTime(), ServerCrash, a.server(), a.span(10*time.Second, time.Minute), "")
	for _, kind := range []string{"plan", "state", "status", "attempt"} {
		a.add(a.randomTime(), CrashAt, a.server(), a.span(3*time.Second, 20*time.Second),
			fmt.Sprintf("%s %s %d", kind, []string{crashBefore, crashAfter, crashSeen}[r.IntN(3)], 1+r.IntN(3)))
	}
	for range 3 {
		a.add(a.randomTime(), Cut, a.anyNode()+"-"+a.server(), 10*time.Second+a.span(time.Minute, 3*time.Minute), "")
	}
	for range 6 {
		a.add(a.randomTime(), Noise, a.anyNode()+"-"+a.server(), a.span(time.Minute, 3*time.Minute), "")
	}
	a.add(a.randomTime(), Cut, a.server()+"-db", a.span(5*time.Second, 15*time.Second), "")
	a.add(a.randomTime(), ServerPause, a.server(), a.span(8*time.Second, 30*time.Second), "")
	a.add(a.randomTime(), Lag, a.server(), a.span(20*time.Second, time.Minute), "2s")
	a.add(a.randomTime(), EngineLate, a.server(), a.span(20*time.Second, time.Minute), "")
	a.add(a.randomTime(), EngineDeaf, a.server(), a.span(20*time.Second, time.Minute), "")
	a.add(a.randomTime(), EngineCrash, "db", a.span(3*time.Second, 10*time.Second), "")
	a.add(a.randomTime(), Trouble, a.anyNode(), a.span(20*time.Second, time.Minute), "")
	for range 4 {
		a.add(a.randomTime(), Kill, a.anyNode(), 0, "")
	}
	a.add(a.randomTime(), User, "web", 0, fmt.Sprintf("roll %d", 1+r.IntN(2)))
	a.add(a.randomTime(), User, "api", 0, fmt.Sprintf("scale %d", 1+r.IntN(4)))
	node, at := a.anyNode(), a.randomTime()
	a.add(at, User, node, 0, []string{"cordon", "drain"}[r.IntN(2)])
	a.add(at+a.span(2*time.Minute, 4*time.Minute), User, node, 0, "uncordon")
}

// anyNode picks any node of the story.
func (a *generator) anyNode() string { return name("n", 1+a.random.IntN(a.story.Nodes)) }

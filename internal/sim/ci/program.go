package ci

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/berthd/berth/internal/cluster"
)

// Exit codes of the programs.
const (
	failedCode = 1
	BrokenCode = 2  // the sources are broken, and another attempt does not help
	FlakyCode  = 75 // another attempt may help
)

// kind is how the programs of a kind of steps behave. A share is one in that many.
type kind struct {
	shortest, longest time.Duration
	broken            int // share of the tasks whose first attempts fail
	code              int // their exit code
	flaky             int // share of the attempts that fail with FlakyCode
	hangs             int // share of the attempts that only a signal ends
}

func kindOf(step string) kind {
	name, _, _ := strings.Cut(step, "-")
	switch name {
	case "checkout", "clean", "report":
		return kind{shortest: 4 * time.Second, longest: 15 * time.Second, broken: 150, code: failedCode, flaky: 50}
	case "build":
		return kind{shortest: 10 * time.Second, longest: 60 * time.Second, broken: 40, code: BrokenCode, flaky: 60}
	case "test":
		return kind{
			shortest: 8 * time.Second, longest: 75 * time.Second, broken: 300, code: failedCode, flaky: 40, hangs: 400,
		}
	case "batch":
		return kind{shortest: 5 * time.Second, longest: 30 * time.Second, broken: 400, code: failedCode, flaky: 60}
	case "deploy":
		return kind{shortest: 8 * time.Second, longest: 30 * time.Second, broken: 40, code: failedCode, flaky: 1000}
	}
	return kind{shortest: 20 * time.Second, longest: 2 * time.Minute, broken: 80, code: failedCode, flaky: 40}
}

// Program returns the words of the program of an attempt, for the fake executor. It is nil for tasks of other clusters.
// Equal arguments give equal programs, on every node.
func Program(seed uint64, task cluster.TaskID, attempt string) []string {
	parts, ok := task.Parts()
	if !ok || !Owns(parts.Cluster) {
		return nil
	}
	k := kindOf(parts.Step)
	if u := fairUserOf(parts); u != nil {
		k = kind{shortest: u.shortest, longest: u.longest, broken: 200, code: failedCode, flaky: 60}
	}
	ofTask, ofAttempt := draws(seed, string(task)), draws(seed, string(task)+"/"+attempt)
	code := 0
	switch {
	case ofTask.IntN(k.broken) == 0 && ofAttempt.IntN(4) > 0: // a later attempt may succeed
		code = k.code
	case ofAttempt.IntN(k.flaky) == 0:
		code = FlakyCode
	case k.hangs > 0 && ofAttempt.IntN(k.hangs) == 0:
		return []string{"run"}
	}
	span := k.longest - k.shortest
	length := k.shortest + time.Duration(ofAttempt.Int64N(int64(span))).Truncate(time.Millisecond)
	words := []string{"exit", fmt.Sprint(code), "after", length.String()}
	if ofTask.IntN(6) == 0 {
		words = append(words, "ignore-term")
	}
	return words
}

// draws returns random numbers that follow from a seed and a text.
func draws(seed uint64, text string) *rand.Rand {
	h := fnv.New64a()
	_, _ = h.Write([]byte(text))
	return rand.New(rand.NewPCG(seed, h.Sum64()))
}

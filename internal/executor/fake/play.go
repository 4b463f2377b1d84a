package fake

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/executor"
)

// play is the behaviour of a program.
type play struct {
	stdout, stderr []string
	ends           bool
	after          time.Duration
	exit           cluster.Exit
	onTerm         *cluster.Exit
	ignoreTerm     bool
	prepareDelay   time.Duration
	prepareFail    string
}

// parse reads the words of a program:
//
//	run, serve           runs until a signal, as does an empty program
//	exit CODE            ends with the code, immediately or
//	after DURATION       that long after its start
//	oom, unknown         makes the end one by memory, or an unknown one
//	print TEXT           writes a line at its start
//	eprint TEXT          writes a line to the other output
//	term CODE            ends with the code on TERM; without it by the signal
//	ignore-term          does not end on TERM
//	prepare-delay D      is prepared after that long
//	prepare-fail TEXT    cannot be prepared
func parse(command, args []string) (play, error) {
	var p play
	words := slices.Concat(command, args)
	next := func() string {
		if len(words) == 0 {
			return ""
		}
		w := words[0]
		words = words[1:]
		return w
	}
	for len(words) > 0 {
		var err error
		switch word := next(); word {
		case "run", "serve":
		case "exit":
			p.ends = true
			p.exit.Code, err = strconv.Atoi(next())
			if p.exit.Code > 128 && err == nil {
				p.exit.Signal = p.exit.Code - 128
			}
			if p.exit.Code == 255 {
				p.exit.Signal = 0
			}
		case "after":
			p.after, err = time.ParseDuration(next())
		case "oom":
			p.ends, p.exit = true, cluster.Exit{Code: 137, Signal: 9, OOM: true}
		case "unknown":
			p.ends, p.exit = true, cluster.Exit{Code: -1, Unknown: true}
		case "print":
			p.stdout = append(p.stdout, next())
		case "eprint":
			p.stderr = append(p.stderr, next())
		case "term":
			p.onTerm = &cluster.Exit{}
			p.onTerm.Code, err = strconv.Atoi(next())
		case "ignore-term":
			p.ignoreTerm = true
		case "prepare-delay":
			p.prepareDelay, err = time.ParseDuration(next())
		case "prepare-fail":
			p.prepareFail = next()
		default:
			return play{}, fmt.Errorf("command: %w: %q is not a word of a fake program", executor.ErrUnsupported, word)
		}
		if err != nil {
			return play{}, fmt.Errorf("command: %w: %w", executor.ErrUnsupported, err)
		}
	}
	return p, nil
}

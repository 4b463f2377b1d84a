package wait

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
)

// Progress shows the state of targets on standard error. A terminal is updated in place. Elsewhere each change is a
// line.
type Progress struct {
	sess    *session.Session
	targets []*Target
	width   int // columns of the terminal, or 0 without one
	label   int // width of the longest name
	drawn   int // lines on the terminal
	printed map[*Target]printedLine
}

// printedLine is the last printed line of a target.
type printedLine struct {
	brief, line string
	at          time.Time
}

// minReprintInterval is the minimum interval between lines that differ in their message only.
const minReprintInterval = 10 * time.Second

// NewProgress returns the progress of targets on the session's standard error.
func NewProgress(sess *session.Session, targets []*Target) *Progress {
	p := &Progress{sess: sess, targets: targets, printed: map[*Target]printedLine{}}
	if sess.Env("TERM") != "dumb" {
		p.width = output.TerminalWidth(sess.Stderr)
	}
	for _, t := range targets {
		p.label = max(p.label, utf8.RuneCountInString(sess.Shorten(t.Name.String())))
	}
	return p
}

// Show prints the changes since the last call.
func (p *Progress) Show() {
	if p.width == 0 {
		for _, t := range p.targets {
			line, last, now := p.format(t), p.printed[t], p.sess.Now()
			if t.Line == "" || line == last.line || t.Brief == last.brief && now.Sub(last.at) < minReprintInterval {
				continue
			}
			p.printed[t] = printedLine{t.Brief, line, now}
			p.sess.Messagef("%s", line)
		}
		return
	}
	const most = 20 // lines; unfinished targets come first
	var lines []string
	for _, done := range []bool{false, true} {
		for _, t := range p.targets {
			if own := p.wrap(t); t.done == done && len(lines)+len(own) <= most {
				lines = append(lines, own...)
			}
		}
	}
	var b strings.Builder
	p.erase(&b)
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	p.drawn = len(lines)
	fmt.Fprint(p.sess.Stderr, b.String())
}

// maxTargetLines is how many lines of a terminal a target has at most.
const maxTargetLines = 4

// wrap returns the lines of a target on a terminal. A text that is too long for its line continues below, so that the
// reason at its end is seen.
func (p *Progress) wrap(t *Target) []string {
	width := p.width - 1
	line := p.mark(t) + " " + p.format(t)
	if utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	const indent = "    "
	text, name := p.sess.Shorten(t.Line), p.sess.Shorten(t.Name.String())
	head, rest, found := strings.Cut(strings.TrimSpace(text), "  ") // the state, and the text after it
	if !found {
		head, rest = "", text
	}
	head = strings.TrimSpace(fmt.Sprintf("%s %-*s  %s", p.mark(t), p.label, name, head))
	lines := []string{output.Truncate(head, width)}
	for i, part := range output.Wrap(rest, width-len(indent)) {
		if i == maxTargetLines-1 {
			lines[i] = output.Truncate(lines[i]+" "+part, width)
			break
		}
		lines = append(lines, indent+output.Truncate(part, width-len(indent)))
	}
	return lines
}

// Note prints a message between two updates.
func (p *Progress) Note(text string) {
	var b strings.Builder
	p.erase(&b)
	fmt.Fprintf(p.sess.Stderr, "%sberth: %s\n", b.String(), p.sess.Shorten(text))
}

// End removes the lines from a terminal, before a report.
func (p *Progress) End() {
	var b strings.Builder
	p.erase(&b)
	fmt.Fprint(p.sess.Stderr, b.String())
}

// erase moves the cursor up over the lines and clears them.
func (p *Progress) erase(b *strings.Builder) {
	if p.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

func (p *Progress) format(t *Target) string {
	text := t.Line
	if text == "" {
		text = "waiting for the server"
	}
	return fmt.Sprintf("%-*s  %s", p.label, p.sess.Shorten(t.Name.String()), p.sess.Shorten(text))
}

func (p *Progress) mark(t *Target) string {
	switch {
	case t.Failure != "":
		return "✗"
	case t.done:
		return "✓"
	}
	return "…"
}

package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// progress shows on standard error how the targets of run come along: on a terminal in place, elsewhere
// a line for each change.
type progress struct {
	app     *app
	targets []*target
	width   int // of the terminal, 0 without one
	label   int // width of the longest name
	drawn   int // lines that stand on the terminal
	told    map[*target]telling
}

// telling is what was last told of a target.
type telling struct {
	brief, line string
	at          time.Time
}

// retell is how often a change of words alone is worth a line.
const retell = 10 * time.Second

func (a *app) newProgress(targets []*target) *progress {
	p := &progress{app: a, targets: targets, told: map[*target]telling{}}
	if a.env("TERM") != "dumb" {
		p.width = terminalWidth(a.stderr)
	}
	for _, t := range targets {
		p.label = max(p.label, utf8.RuneCountInString(t.name.String()))
	}
	return p
}

// show shows what changed since it was last called.
func (p *progress) show() {
	if p.width == 0 {
		for _, t := range p.targets {
			line, last, now := p.line(t), p.told[t], p.app.now()
			if t.line == "" || line == last.line || t.brief == last.brief && now.Sub(last.at) < retell {
				continue
			}
			p.told[t] = telling{t.brief, line, now}
			p.app.tell("%s", line)
		}
		return
	}
	const most = 20 // lines; what needs attention is shown before what is done
	var lines []string
	for _, done := range []bool{false, true} {
		for _, t := range p.targets {
			if t.done == done && len(lines) < most {
				lines = append(lines, cut(p.mark(t)+" "+p.line(t), p.width-1))
			}
		}
	}
	var b strings.Builder
	p.erase(&b)
	for _, l := range lines {
		b.WriteString(l + "\n")
	}
	p.drawn = len(lines)
	fmt.Fprint(p.app.stderr, b.String())
}

// note tells something in between.
func (p *progress) note(text string) {
	var b strings.Builder
	p.erase(&b)
	fmt.Fprintf(p.app.stderr, "%sberth: %s\n", b.String(), text)
}

// end leaves a terminal without the lines that are drawn: the report follows.
func (p *progress) end() {
	var b strings.Builder
	p.erase(&b)
	fmt.Fprint(p.app.stderr, b.String())
}

// erase moves up over the lines that are drawn and clears them.
func (p *progress) erase(b *strings.Builder) {
	if p.drawn > 0 {
		fmt.Fprintf(b, "\x1b[%dA\x1b[J", p.drawn)
		p.drawn = 0
	}
}

func (p *progress) line(t *target) string {
	text := t.line
	if text == "" {
		text = "waiting for the server"
	}
	return fmt.Sprintf("%-*s  %s", p.label, t.name, text)
}

func (p *progress) mark(t *target) string {
	switch {
	case t.failure != "":
		return "✗"
	case t.done:
		return "✓"
	}
	return "…"
}

// joinNonEmpty joins the parts that are not empty.
func joinNonEmpty(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.Join(kept, sep)
}

package main

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// line is one of a panel's: its points, and how it is drawn.
type line struct {
	name, color, dash string
	points            [][2]float64
}

// panel is a diagram of two logarithmic axes.
type panel struct {
	left          float64
	title, unit   string
	bottom, top   float64 // powers of ten of the y axis
	lines         []line
	say           func(y float64) string
	first, latest float64 // powers of ten of the x axis
}

// The picture's measures, in its own points.
const (
	width, height     = 1000, 470
	panelWidth        = 370.0
	panelTop          = 64.0
	panelHeight       = 260.0
	blue, green, teal = "#1f5fa8", "#2a8a4a", "#1a9aa0"
	red, orange       = "#b3382c", "#c77d14"
)

// picture draws what was measured, as SVG.
func picture(own, whole [][]float64) string {
	rates := panel{
		left: 82, title: "Placements a second",
		unit: "decisions: of processor time; end to end: of the clock", bottom: 3, top: 7, first: 3, latest: 5,
		say: amount, lines: []line{
			{"decisions: replicas, 20 owners", blue, "", column(own, 2, 1)},
			{"decisions: replicas spread over 25 racks", green, "", column(own, 3, 1)},
			{"decisions: all different", teal, "", column(own, 4, 1)},
			{"durable, end to end through the API", red, "6 4", column(whole, 2, 1)},
		},
	}
	times := panel{
		left: 590, title: "Time of one placement", unit: "milliseconds, as on the left", bottom: -2, top: 4,
		first: 3, latest: 5, say: amount, lines: []line{
			{"decision alone, median", teal, "2 3", column(own, 5, 0.001)},
			{"decision alone, 99 of 100", blue, "", column(own, 6, 0.001)},
			{"end to end through the API, median", orange, "2 3", column(whole, 3, 1)},
			{"end to end through the API, 99 of 100", red, "6 4", column(whole, 4, 1)},
		},
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="Helvetica, Arial, sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<title>What placing costs as the fleet grows</title><rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	rates.draw(&b)
	times.draw(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// column takes a measure of each fleet.
func column(rows [][]float64, at int, unit float64) (points [][2]float64) {
	for _, row := range rows {
		if row[at] > 0 {
			points = append(points, [2]float64{row[0], row[at] * unit})
		}
	}
	return points
}

func (p *panel) x(nodes float64) float64 {
	return p.left + panelWidth*(math.Log10(nodes)-p.first)/(p.latest-p.first)
}

func (p *panel) y(v float64) float64 {
	at := (math.Log10(v) - p.bottom) / (p.top - p.bottom)
	return panelTop + panelHeight*(1-min(max(at, 0), 1))
}

func (p *panel) draw(b *strings.Builder) {
	text(b, p.left, panelTop-32, `font-size="16" font-weight="bold"`, p.title)
	text(b, p.left, panelTop-12, `fill="#555"`, p.unit)
	for e := p.bottom; e <= p.top; e++ {
		y := p.y(math.Pow(10, e))
		fmt.Fprintf(b, `<path d="M%.1f %.1fh%.1f" stroke="#ccc"/>`+"\n", p.left, y, panelWidth)
		text(b, p.left-8, y+4, `text-anchor="end"`, p.say(math.Pow(10, e)))
		for m := 2.0; m < 10 && e < p.top; m++ {
			fmt.Fprintf(b, `<path d="M%.1f %.1fh%.1f" stroke="#f0f0f0"/>`+"\n", p.left, p.y(m*math.Pow(10, e)),
				panelWidth)
		}
	}
	for _, nodes := range []float64{1e3, 3e3, 1e4, 3e4, 1e5} {
		x := p.x(nodes)
		fmt.Fprintf(b, `<path d="M%.1f %.1fv%.1f" stroke="#ccc"/>`+"\n", x, panelTop, panelHeight+5)
		text(b, x, panelTop+panelHeight+21, `text-anchor="middle"`, amount(nodes))
		text(b, x, panelTop+panelHeight+38, `text-anchor="middle" fill="#555"`, amount(nodes*tasksPerNode))
	}
	text(b, p.left-34, panelTop+panelHeight+21, `text-anchor="end"`, "nodes")
	text(b, p.left-34, panelTop+panelHeight+38, `text-anchor="end" fill="#555"`, "tasks")
	at := panelTop + panelHeight + 66
	for i := range p.lines {
		l := &p.lines[i]
		if len(l.points) == 0 {
			continue
		}
		l.draw(b, p)
		fmt.Fprintf(b, `<path d="M%.1f %.1fh28" stroke="%s" stroke-width="2.2" stroke-dasharray="%s"/>`+"\n", p.left,
			at-4, l.color, l.dash)
		text(b, p.left+36, at, "", l.name)
		at += 19
	}
}

func (l *line) draw(b *strings.Builder, p *panel) {
	b.WriteString(`<path fill="none" d="`)
	for i, at := range l.points {
		fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(i, 1)], p.x(at[0]), p.y(at[1]))
	}
	fmt.Fprintf(b, `" stroke="%s" stroke-width="2.2" stroke-dasharray="%s"/>`+"\n", l.color, l.dash)
	for _, at := range l.points {
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.2" fill="%s"/>`+"\n", p.x(at[0]), p.y(at[1]), l.color)
	}
}

func text(b *strings.Builder, x, y float64, style, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" %s>%s</text>`+"\n", x, y, style, html.EscapeString(s))
}

// amount returns the shortest text of a number: 10 k, 1 M, 0.01.
func amount(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.6g M", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.6g k", x/1e3)
	}
	return fmt.Sprintf("%.3g", x)
}

package output

import (
	"io"
	"os"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Values of --output.
const (
	OutputTable = "table"
	OutputWide  = "wide"
	OutputJSON  = "json"
	OutputYAML  = "yaml"
	OutputName  = "name" // for lists: one name a line
)

// Table is rows of cells under titles. A title that begins with "+" is shown with -o wide only. A title that ends with
// ">" is aligned to the right.
type Table struct {
	Titles []string
	Rows   [][]string
	Indent string
	// StateColumn is the index of the column whose words are coloured; 0 means none.
	StateColumn int
	// KeepColumns also prints columns without content.
	KeepColumns bool
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// Insert inserts columns before the messages, or at the end. Row i gets the cells that cells returns for i.
func (t *Table) Insert(titles []string, cells func(i int) []string) {
	at := slices.Index(t.Titles, "MESSAGE")
	if at < 0 {
		at = len(t.Titles)
	}
	t.Titles = slices.Insert(slices.Clone(t.Titles), at, titles...)
	for i, row := range t.Rows {
		t.Rows[i] = slices.Insert(slices.Clone(row), at, cells(i)...)
	}
}

// WithoutMessages returns the table without messages, for a page that shows them elsewhere.
func (t Table) WithoutMessages() Table {
	c := slices.Index(t.Titles, "MESSAGE")
	for _, row := range t.Rows {
		row[c] = ""
	}
	return t
}

// Layout is the form of a printed table. A width of 0 does not limit the lines.
type Layout struct {
	Wide, Color bool
	Width       int
	NoTitles    bool
}

const (
	// minMessageRoom is the smallest width of a column of messages. In a narrower room, messages are below their rows.
	minMessageRoom = 30
	// belowIndent is the indent of messages below their rows.
	belowIndent = 4
	// minShrunk is the smallest width to which a column of text is cut.
	minShrunk = 8
	gap       = 2 // spaces between columns
)

// grid is a table as it is printed: the columns with their widths, and the place of the messages.
type grid struct {
	Table
	Layout
	shown  []int
	widths []int
	// message is the column whose text is wrapped, or -1. Room is its width. Below says that it is printed below its
	// row.
	message, room int
	below         bool
}

// Render returns the table as text. Columns are as wide as their widest cell, with two spaces between. Columns without
// content are left out. If the lines are longer than the width, messages are wrapped: within their column if it has
// room, else below their rows. Other columns of text are cut, the widest first, until the lines fit.
func (t Table) Render(v Layout) string {
	g := grid{Table: t, Layout: v, shown: t.visibleColumns(v.Wide), message: -1}
	g.measure()
	if v.Width > 0 && g.total() > v.Width {
		g.fit()
	}
	var b strings.Builder
	if len(t.Titles) > 0 && strings.Join(t.Titles, "") != "" && !v.NoTitles {
		titles := make([]string, len(t.Titles))
		for c, title := range t.Titles {
			titles[c] = plainTitle(title)
		}
		g.writeLine(&b, titles, false)
	}
	for _, row := range t.Rows {
		g.writeRow(&b, row)
	}
	return b.String()
}

// measure sets the widths of the columns to those of their widest cells.
func (g *grid) measure() {
	g.widths = make([]int, len(g.Titles))
	for _, c := range g.shown {
		if !g.NoTitles {
			g.widths[c] = utf8.RuneCountInString(plainTitle(g.Titles[c]))
		}
		for _, row := range g.Rows {
			g.widths[c] = max(g.widths[c], utf8.RuneCountInString(row[c]))
		}
	}
}

// total returns the width of the longest line.
func (g *grid) total() int {
	n := utf8.RuneCountInString(g.Indent) + gap*(len(g.shown)-1)
	for _, c := range g.shown {
		n += g.widths[c]
	}
	return n
}

// fit makes the lines fit into the width.
func (g *grid) fit() {
	last := g.shown[len(g.shown)-1]
	if title := g.Titles[last]; len(g.shown) == 1 || title != "MESSAGE" && title != "" {
		g.shrink()
		return
	}
	g.message = last
	if g.room = g.widths[last] - (g.total() - g.Width); g.room >= minMessageRoom {
		return
	}
	g.below, g.room = true, g.Width-utf8.RuneCountInString(g.Indent)-belowIndent
	g.shown = g.shown[:len(g.shown)-1]
	g.shrink()
}

// shrink cuts columns of text, the widest first, until the lines fit or no column can be cut further. The first column,
// which holds the name, and the state stay whole.
func (g *grid) shrink() {
	for g.total() > g.Width {
		widest := -1
		for i, c := range g.shown {
			switch {
			case strings.HasSuffix(g.Titles[c], ">") || c == g.StateColumn && c > 0 || i == 0 && len(g.shown) > 1:
			case g.widths[c] > max(minShrunk, utf8.RuneCountInString(plainTitle(g.Titles[c]))) &&
				(widest < 0 || g.widths[c] >= g.widths[widest]):
				widest = c
			}
		}
		if widest < 0 {
			return
		}
		g.widths[widest]--
	}
}

// writeRow writes a row with its message.
func (g *grid) writeRow(b *strings.Builder, row []string) {
	if g.message < 0 {
		g.writeLine(b, row, true)
		return
	}
	lines := []string{row[g.message]}
	if utf8.RuneCountInString(row[g.message]) > g.room {
		lines = Wrap(row[g.message], g.room)
	}
	if !g.below {
		row = slices.Clone(row)
		for i, line := range lines {
			if i > 0 {
				clear(row)
			}
			row[g.message] = line
			g.writeLine(b, row, true)
		}
		return
	}
	if slices.ContainsFunc(g.shown, func(c int) bool { return row[c] != "" }) {
		g.writeLine(b, row, true)
	}
	for _, line := range lines {
		if line != "" {
			b.WriteString(g.Indent + strings.Repeat(" ", belowIndent) + line + "\n")
		}
	}
}

// writeLine writes one line of cells.
func (g *grid) writeLine(b *strings.Builder, cells []string, paint bool) {
	var l strings.Builder
	for i, c := range g.shown {
		text := cells[c]
		if utf8.RuneCountInString(text) > g.widths[c] {
			text = Truncate(text, g.widths[c])
		}
		pad := strings.Repeat(" ", max(0, g.widths[c]-utf8.RuneCountInString(text)))
		if paint && g.Color && c == g.StateColumn && c > 0 {
			text = colorWords(text)
		}
		switch last := i == len(g.shown)-1; {
		case strings.HasSuffix(g.Titles[c], ">"):
			l.WriteString(pad + text)
		case last:
			l.WriteString(text)
		default:
			l.WriteString(text + pad)
		}
		if i < len(g.shown)-1 {
			l.WriteString(strings.Repeat(" ", gap))
		}
	}
	b.WriteString(strings.TrimRight(g.Indent+l.String(), " ") + "\n")
}

// Wrap breaks a text between words into lines of at most width columns. A width of 0 or less is no limit.
func Wrap(text string, width int) []string {
	const least = 20
	if width <= 0 {
		return []string{text}
	}
	width = max(width, least)
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width {
			lines = append(lines, line)
			line = ""
		}
		line = strings.TrimSpace(line + " " + word)
	}
	return append(lines, line)
}

// visibleColumns returns the indexes of the columns to print.
func (t Table) visibleColumns(wide bool) []int {
	var shown []int
	for c, title := range t.Titles {
		if strings.HasPrefix(title, "+") && !wide {
			continue
		}
		filled := slices.ContainsFunc(t.Rows, func(row []string) bool { return row[c] != "" && row[c] != "-" })
		if c == 0 || filled || len(t.Rows) == 0 || t.KeepColumns {
			shown = append(shown, c)
		}
	}
	return shown
}

func plainTitle(title string) string {
	return strings.TrimSuffix(strings.TrimPrefix(title, "+"), ">")
}

// Truncate shortens a text to a width. A minimum of a few characters stays.
func Truncate(text string, width int) string {
	width = max(width, minShrunk)
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// TerminalWidth returns the number of columns of the terminal behind w, or 0 without one.
func TerminalWidth(w io.Writer) int {
	if c, ok := w.(*Capture); ok {
		return TerminalWidth(c.Target)
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}

// Fit removes columns from the right until the lines fit into a width. It keeps the first ones.
func (t Table) Fit(width, first int, wide bool) Table {
	for {
		shown := t.visibleColumns(wide)
		need := 2 * (len(shown) - 1)
		for _, c := range shown {
			most := utf8.RuneCountInString(plainTitle(t.Titles[c]))
			for _, row := range t.Rows {
				most = max(most, utf8.RuneCountInString(row[c]))
			}
			need += most
		}
		if need <= width || len(shown) <= first {
			return t
		}
		last := shown[len(shown)-1]
		t.Titles = t.Titles[:last]
	}
}

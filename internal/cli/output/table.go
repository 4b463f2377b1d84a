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
)

// Table is rows of cells under titles. A title that begins with "+" is shown with -o wide only. A title that ends with
// ">" is aligned to the right.
type Table struct {
	Titles []string
	Rows   [][]string
	Indent string
	// StateColumn is the index of the column whose words are coloured; 0 means none.
	StateColumn int
}

// Add appends a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

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
}

// Render returns the table as text. Columns are as wide as their widest cell, with two spaces between. The last column
// is cut at the width. Columns without content are left out.
func (t Table) Render(v Layout) string {
	shown := t.visibleColumns(v.Wide)
	widths := make([]int, len(t.Titles))
	for _, c := range shown {
		widths[c] = utf8.RuneCountInString(plainTitle(t.Titles[c]))
		for _, row := range t.Rows {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	var b strings.Builder
	line := func(cell func(int) string, paint bool) {
		var l strings.Builder
		room := v.Width - utf8.RuneCountInString(t.Indent)
		for i, c := range shown {
			text := cell(c)
			last := i == len(shown)-1
			if last && v.Width > 0 {
				text = Truncate(text, room)
			}
			pad := strings.Repeat(" ", max(0, widths[c]-utf8.RuneCountInString(text)))
			room -= widths[c] + 2
			if paint && v.Color && c == t.StateColumn && c > 0 {
				text = colorWords(text)
			}
			switch {
			case strings.HasSuffix(t.Titles[c], ">"):
				l.WriteString(pad + text)
			case last:
				l.WriteString(text)
			default:
				l.WriteString(text + pad)
			}
			if !last {
				l.WriteString("  ")
			}
		}
		b.WriteString(strings.TrimRight(t.Indent+l.String(), " ") + "\n")
	}
	if len(t.Titles) > 0 && strings.Join(t.Titles, "") != "" {
		line(func(c int) string { return plainTitle(t.Titles[c]) }, false)
	}
	for _, row := range t.Rows {
		line(func(c int) string { return row[c] }, true)
	}
	return b.String()
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
		if c == 0 || filled || len(t.Rows) == 0 {
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
	width = max(width, 10)
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}

// TerminalWidth returns the number of columns of the terminal behind w, or 0 without one.
func TerminalWidth(w io.Writer) int {
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

package top

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"charm.land/bubbletea/v2"

	"github.com/berthd/berth/api/client"
	"github.com/berthd/berth/internal/cli/output"
	"github.com/berthd/berth/internal/cli/session"
)

// topScreen is the live screen of `berth top`. It reads the usage at an interval. While no server answers it shows the
// last usage and its time.
type topScreen struct {
	sess    *session.Session
	options topOptions
	read    func(topOptions) (topUsage, error)

	usage      topUsage
	readAt     time.Time // time of the last usage, zero before the first
	fault      string    // why the last read failed
	readNumber int       // number of the expected read; a result with another number is dropped

	ascending, paused, help bool
	firstRow                int // the first visible row
	width, height           int
}

// usageRead is the result of a read, and readDue requests the next one.
type (
	usageRead struct {
		number int
		usage  topUsage
		err    error
		at     time.Time
	}
	readDue struct{ number int }
)

// runScreen shows a live screen until the user or the context ends it. It restores the terminal.
func runScreen(ctx context.Context, sess *session.Session, c *client.Client, o topOptions) error {
	m := topScreen{sess: sess, options: o, read: func(o topOptions) (topUsage, error) { return o.readUsage(ctx, c) }}
	options := []tea.ProgramOption{tea.WithOutput(sess.Stdout), tea.WithoutSignalHandler()}
	input, ok := sess.Stdin.(*os.File)
	if ok && output.TerminalWidth(input) > 0 {
		options = append(options, tea.WithInput(input))
	} else {
		options = append(options, tea.WithInput(nil)) // without a terminal there are no keys
	}
	program := tea.NewProgram(m, options...)
	// Quit waits for the goroutine that reads the keys. A canceled context would close the terminal while it reads.
	defer context.AfterFunc(ctx, program.Quit)()
	_, err := program.Run()
	return err
}

// Init implements tea.Model.
func (m topScreen) Init() tea.Cmd { return m.readNext() }

// readNext reads the usage once.
func (m topScreen) readNext() tea.Cmd {
	round, opt, ask, now := m.readNumber, m.options, m.read, m.sess.Now
	return func() tea.Msg {
		use, err := ask(opt)
		return usageRead{round, use, err, now()}
	}
}

// Update implements tea.Model.
func (m topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case usageRead:
		if msg.number != m.readNumber {
			return m, nil
		}
		if m.fault = ""; msg.err != nil {
			m.fault = faultText(msg.err)
		} else {
			m.usage, m.readAt = msg.usage, msg.at
		}
		round := m.readNumber
		return m.scrollBy(0), tea.Tick(m.options.interval, func(time.Time) tea.Msg { return readDue{round} })
	case readDue:
		if msg.number == m.readNumber && !m.paused {
			return m, m.readNext()
		}
	case tea.KeyPressMsg:
		return m.handleKey(msg.String())
	}
	return m, nil
}

// handleKey handles a key.
func (m topScreen) handleKey(key string) (tea.Model, tea.Cmd) {
	page := max(m.countVisibleRows()-1, 1)
	views, orders := topViews(), topOrders(m.options.view)
	switch key {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "tab", "right":
		return m.switchView(views[(slices.Index(views, m.options.view)+1)%len(views)])
	case "shift+tab", "left":
		return m.switchView(views[(slices.Index(views, m.options.view)+len(views)-1)%len(views)])
	case "1", "2", "3":
		return m.switchView(views[key[0]-'1'])
	case "s":
		m.options.sortBy = orders[(slices.Index(orders, m.options.sortBy)+1)%len(orders)]
	case "S":
		m.options.sortBy = orders[(slices.Index(orders, m.options.sortBy)+len(orders)-1)%len(orders)]
	case "c", "m", "d", "n":
		for _, o := range orders {
			if o == map[string]string{"c": "cpu", "m": "memory", "d": "disk", "n": "name"}[key] {
				m.options.sortBy = o
			}
		}
	case "r":
		m.ascending = !m.ascending
	case "o":
		m.options.containers = !m.options.containers
	case "space":
		if m.paused = !m.paused; !m.paused {
			m.readNumber++
			return m, m.readNext()
		}
	case "?", "h":
		m.help = !m.help
	case "down", "j":
		return m.scrollBy(1), nil
	case "up", "k":
		return m.scrollBy(-1), nil
	case "pgdown":
		return m.scrollBy(page), nil
	case "pgup":
		return m.scrollBy(-page), nil
	case "home", "g":
		return m.scrollBy(-m.firstRow), nil
	case "end", "G":
		return m.scrollBy(m.countRows()), nil
	}
	return m, nil
}

// switchView shows another view from its first row. It keeps the sort order if the view has it.
func (m topScreen) switchView(view string) (tea.Model, tea.Cmd) {
	if view == m.options.view {
		return m, nil
	}
	m.options.view = view
	if !slices.Contains(topOrders(view), m.options.sortBy) {
		m.options.sortBy = topOrders(view)[0]
	}
	m.usage, m.readAt, m.firstRow, m.fault, m.paused = topUsage{view: view}, time.Time{}, 0, "", false
	m.readNumber++
	return m, m.readNext()
}

// countRows returns the number of rows.
func (m topScreen) countRows() int {
	return len(usageTable(m.sess, m.usage, m.options.containers).Rows)
}

// frameLines counts the lines beside the rows: headline, sort order, titles and keys.
const frameLines = 4

// countVisibleRows returns how many rows fit into the window.
func (m topScreen) countVisibleRows() int { return max(m.height-frameLines, 1) }

// scrollBy moves the first row, within the table.
func (m topScreen) scrollBy(by int) topScreen {
	m.firstRow = max(min(m.firstRow+by, m.countRows()-m.countVisibleRows()), 0)
	return m
}

// View implements tea.Model.
func (m topScreen) View() tea.View {
	v := tea.NewView(m.render())
	v.AltScreen = true
	v.WindowTitle = "berth top " + m.options.view
	return v
}

// keysText is the last line. The most important keys come first, because narrow windows cut it.
const keysText = "q quit  tab view  s sort  r reverse  o containers  space pause  ↑↓ scroll  ? keys"

// helpText is the page for the key "?".
const helpText = `tab, 1 2 3      nodes, services, tasks
s, S            next order, previous order
c m d n         by cpu, memory, disk, name
r               reverse the order
o               containers of tasks that have several
space           pause, resume
↑ ↓ PgUp PgDn   scroll; Home and End go to the first and last
q, Esc, Ctrl-C  quit`

// render returns the screen as text that fits into the window.
func (m topScreen) render() string {
	if m.width <= 0 || m.height <= 0 {
		return ""
	}
	color := m.sess.HasColors(m.sess.Stdout)
	paint := func(text, c string) string {
		if !color {
			return text
		}
		return output.Colored(text, c)
	}
	var tabs []string
	for i, v := range topViews() {
		if v == m.options.view {
			v = "[" + v + "]"
		}
		tabs = append(tabs, fmt.Sprintf("%d %s", i+1, v))
	}
	lines := []string{clip(strings.Join(tabs, "  ")+"  "+m.headline(), m.width), m.statusText(paint)}
	switch {
	case m.help:
		for line := range strings.Lines(helpText) {
			lines = append(lines, clip(strings.TrimSuffix(line, "\n"), m.width))
		}
	case m.readAt.IsZero() || m.usage.emptyText() != "":
	default:
		lines = append(lines, m.table(color)...)
	}
	lines = lines[:min(len(lines), max(m.height-1, 1))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	if m.height > 1 {
		lines = append(lines, paint(clip(keysText, m.width), output.Grey))
	}
	return strings.Join(lines, "\n")
}

// headline names the view.
func (m topScreen) headline() string {
	switch {
	case m.readAt.IsZero() && m.fault != "":
		return ""
	case m.readAt.IsZero():
		return "loading …"
	case m.usage.emptyText() != "":
		return m.usage.emptyText()
	}
	return m.usage.headline()
}

// statusText contains the sort order, or since when no server answers.
func (m topScreen) statusText(paint func(text, color string) string) string {
	if m.fault != "" {
		text := m.fault
		if !m.readAt.IsZero() {
			text = "state of " + m.sess.Age(m.readAt) + " ago: " + text
		}
		return paint(clip(text, m.width), output.Red)
	}
	text := "by " + m.options.sortBy
	if m.ascending {
		text += ", reversed"
	}
	if m.paused {
		text += "; paused"
	} else {
		text += ", every " + m.options.interval.String()
	}
	if n, shown := m.countRows(), m.countVisibleRows(); n > shown {
		text += fmt.Sprintf("; %d to %d of %d", m.firstRow+1, min(m.firstRow+shown, n), n)
	}
	return clip(text, m.width)
}

// table returns the titles and the rows that fit.
func (m topScreen) table(color bool) []string {
	use := m.usage
	use.nodes, use.tasks, use.owners = slices.Clone(use.nodes), slices.Clone(use.tasks), slices.Clone(use.owners)
	use.sort(m.options.sortBy, m.ascending)
	t := m.sess.ShortenTable(usageTable(m.sess, use, m.options.containers))
	wide := m.sess.Format == output.OutputWide
	t = t.Fit(m.width, 3, wide)
	text := strings.TrimSuffix(t.Render(output.Layout{Wide: wide, Color: color}), "\n")
	all := strings.Split(text, "\n")
	for i := range all {
		if utf8.RuneCountInString(stripColors(all[i])) > m.width {
			all[i] = clip(stripColors(all[i]), m.width)
		}
	}
	if color { // titles stand out
		all[0] = output.Colored(all[0]+strings.Repeat(" ", max(m.width-utf8.RuneCountInString(all[0]), 0)), "7")
	}
	rows := all[1:]
	return append(all[:1:1], rows[min(m.firstRow, len(rows)):min(m.firstRow+m.countVisibleRows(), len(rows))]...)
}

// stripColors removes escape sequences from a line.
func stripColors(line string) string {
	var b strings.Builder
	for rest := line; ; {
		before, after, found := strings.Cut(rest, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, rest, _ = strings.Cut(after, "m")
	}
}

// clip shortens a line to a width, which may be small.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

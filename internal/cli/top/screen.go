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

// topScreen is the live screen of `berth top`. It looks as often as it was told, goes on with what it saw last while no
// server answers, and says since when.
type topScreen struct {
	sess    *session.Session
	options topOptions
	read    func(topOptions) (topUsage, error)

	usage      topUsage
	readAt     time.Time // when the look was answered, zero before the first
	fault      string    // why the last one was not
	readNumber int       // the number of the look that is awaited: an answer to an earlier one is not shown

	ascending, paused, help bool
	firstRow                int // the first row that is shown
	width, height           int
}

// looked is the answer to a look, and due says that the next one is.
type (
	usageRead struct {
		number int
		usage  topUsage
		err    error
		at     time.Time
	}
	readDue struct{ number int }
)

// liveTop shows a live screen until the user or the context ends it, and leaves the terminal as it was.
func runScreen(ctx context.Context, sess *session.Session, c *client.Client, o topOptions) error {
	m := topScreen{sess: sess, options: o, read: func(o topOptions) (topUsage, error) { return o.readUsage(ctx, c) }}
	options := []tea.ProgramOption{tea.WithOutput(sess.Stdout), tea.WithoutSignalHandler()}
	input, ok := sess.Stdin.(*os.File)
	if ok && output.TerminalWidth(input) > 0 {
		options = append(options, tea.WithInput(input))
	} else {
		options = append(options, tea.WithInput(nil)) // there are no keys
	}
	program := tea.NewProgram(m, options...)
	// Asked to quit it waits for who reads the keys; with the context of its own it would close the terminal under
	// them.
	defer context.AfterFunc(ctx, program.Quit)()
	_, err := program.Run()
	return err
}

// Init is part of tea.Model.
func (m topScreen) Init() tea.Cmd { return m.readNext() }

// next looks once.
func (m topScreen) readNext() tea.Cmd {
	round, opt, ask, now := m.readNumber, m.options, m.read, m.sess.Now
	return func() tea.Msg {
		look, err := ask(opt)
		return usageRead{round, look, err, now()}
	}
}

// Update is part of tea.Model.
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

// pressed does what a key says.
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

// to shows another view, from its first row, and in the same order if it has that one.
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

// rows returns how many rows there are.
func (m topScreen) countRows() int {
	return len(usageTable(m.sess, m.usage, m.options.containers).Rows)
}

// The lines beside the rows: what it is, how it is ordered, the titles, and the keys.
const frameLines = 4

// rowsShown returns how many rows the window has room for.
func (m topScreen) countVisibleRows() int { return max(m.height-frameLines, 1) }

// scrolled moves by so many rows, as far as there are some.
func (m topScreen) scrollBy(by int) topScreen {
	m.firstRow = max(min(m.firstRow+by, m.countRows()-m.countVisibleRows()), 0)
	return m
}

// View is part of tea.Model.
func (m topScreen) View() tea.View {
	v := tea.NewView(m.render())
	v.AltScreen = true
	v.WindowTitle = "berth top " + m.options.view
	return v
}

// keys are what the last line says, the weightiest first.
const keysText = "q quit  tab view  s sort  r reverse  o containers  space pause  ↑↓ scroll  ? keys"

// helpText is what ? shows.
const helpText = `tab, 1 2 3      nodes, services, tasks
s, S            the next order, the one before
c m d n         by cpu, memory, disk, name
r               the least first
o               containers of tasks that have several
space           pause, go on
↑ ↓ PgUp PgDn   scroll; Home and End go to the first and last
q, Esc, Ctrl-C  quit`

// render returns the screen as text: as many lines as the window has at the most, none longer than it.
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

// headline says what is seen.
func (m topScreen) headline() string {
	switch {
	case m.readAt.IsZero() && m.fault != "":
		return ""
	case m.readAt.IsZero():
		return "looking …"
	case m.usage.emptyText() != "":
		return m.usage.emptyText()
	}
	return m.usage.headline()
}

// state says how the screen is ordered, or that the server is lost and since when.
func (m topScreen) statusText(paint func(text, color string) string) string {
	if m.fault != "" {
		text := m.fault
		if !m.readAt.IsZero() {
			text = "as it was " + m.sess.Age(m.readAt) + " ago: " + text
		}
		return paint(clip(text, m.width), output.Red)
	}
	text := "by " + m.options.sortBy
	if m.ascending {
		text += ", the least first"
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

// table returns the titles and the rows that there is room for.
func (m topScreen) table(color bool) []string {
	look := m.usage
	look.nodes, look.tasks, look.owners = slices.Clone(look.nodes), slices.Clone(look.tasks), slices.Clone(look.owners)
	look.sort(m.options.sortBy, m.ascending)
	t := usageTable(m.sess, look, m.options.containers)
	wide := m.sess.Format == output.OutputWide
	t = t.Fit(m.width, 3, wide)
	text := strings.TrimSuffix(t.Render(output.Layout{Wide: wide, Color: color}), "\n")
	all := strings.Split(text, "\n")
	for i := range all {
		if utf8.RuneCountInString(stripColors(all[i])) > m.width {
			all[i] = clip(stripColors(all[i]), m.width)
		}
	}
	if color { // the titles stand out
		all[0] = output.Colored(all[0]+strings.Repeat(" ", max(m.width-utf8.RuneCountInString(all[0]), 0)), "7")
	}
	rows := all[1:]
	return append(all[:1:1], rows[min(m.firstRow, len(rows)):min(m.firstRow+m.countVisibleRows(), len(rows))]...)
}

// stripped takes the colours out of a line.
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

// clip shortens a line to a width, however small.
func clip(text string, width int) string {
	if utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:max(width-1, 0)]) + "…"
}

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
	app *session.Session
	opt topOptions
	ask func(topOptions) (topLook, error)

	look    topLook
	seen    time.Time // when the look was answered, zero before the first
	trouble string    // why the last one was not
	round   int       // the number of the look that is awaited: an answer to an earlier one is not shown

	least, paused, help bool
	first               int // the first row that is shown
	width, height       int
}

// looked is the answer to a look, and due says that the next one is.
type (
	looked struct {
		round int
		look  topLook
		err   error
		at    time.Time
	}
	due struct{ round int }
)

// liveTop shows a live screen until the user or the context ends it, and leaves the terminal as it was.
func liveTop(ctx context.Context, sess *session.Session, c *client.Client, o topOptions) error {
	m := topScreen{app: sess, opt: o, ask: func(o topOptions) (topLook, error) { return o.look(ctx, c) }}
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
func (m topScreen) Init() tea.Cmd { return m.next() }

// next looks once.
func (m topScreen) next() tea.Cmd {
	round, opt, ask, now := m.round, m.opt, m.ask, m.app.Now
	return func() tea.Msg {
		look, err := ask(opt)
		return looked{round, look, err, now()}
	}
}

// Update is part of tea.Model.
func (m topScreen) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case looked:
		if msg.round != m.round {
			return m, nil
		}
		if m.trouble = ""; msg.err != nil {
			m.trouble = lostServer(msg.err)
		} else {
			m.look, m.seen = msg.look, msg.at
		}
		round := m.round
		return m.scrolled(0), tea.Tick(m.opt.every, func(time.Time) tea.Msg { return due{round} })
	case due:
		if msg.round == m.round && !m.paused {
			return m, m.next()
		}
	case tea.KeyPressMsg:
		return m.pressed(msg.String())
	}
	return m, nil
}

// pressed does what a key says.
func (m topScreen) pressed(key string) (tea.Model, tea.Cmd) {
	page := max(m.rowsShown()-1, 1)
	views, orders := topViews(), topOrders(m.opt.view)
	switch key {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "ctrl+z":
		return m, tea.Suspend
	case "tab", "right":
		return m.to(views[(slices.Index(views, m.opt.view)+1)%len(views)])
	case "shift+tab", "left":
		return m.to(views[(slices.Index(views, m.opt.view)+len(views)-1)%len(views)])
	case "1", "2", "3":
		return m.to(views[key[0]-'1'])
	case "s":
		m.opt.by = orders[(slices.Index(orders, m.opt.by)+1)%len(orders)]
	case "S":
		m.opt.by = orders[(slices.Index(orders, m.opt.by)+len(orders)-1)%len(orders)]
	case "c", "m", "d", "n":
		for _, o := range orders {
			if o == map[string]string{"c": "cpu", "m": "memory", "d": "disk", "n": "name"}[key] {
				m.opt.by = o
			}
		}
	case "r":
		m.least = !m.least
	case "o":
		m.opt.containers = !m.opt.containers
	case "space":
		if m.paused = !m.paused; !m.paused {
			m.round++
			return m, m.next()
		}
	case "?", "h":
		m.help = !m.help
	case "down", "j":
		return m.scrolled(1), nil
	case "up", "k":
		return m.scrolled(-1), nil
	case "pgdown":
		return m.scrolled(page), nil
	case "pgup":
		return m.scrolled(-page), nil
	case "home", "g":
		return m.scrolled(-m.first), nil
	case "end", "G":
		return m.scrolled(m.rows()), nil
	}
	return m, nil
}

// to shows another view, from its first row, and in the same order if it has that one.
func (m topScreen) to(view string) (tea.Model, tea.Cmd) {
	if view == m.opt.view {
		return m, nil
	}
	m.opt.view = view
	if !slices.Contains(topOrders(view), m.opt.by) {
		m.opt.by = topOrders(view)[0]
	}
	m.look, m.seen, m.first, m.trouble, m.paused = topLook{view: view}, time.Time{}, 0, "", false
	m.round++
	return m, m.next()
}

// rows returns how many rows there are.
func (m topScreen) rows() int { return len(topTableOf(m.app, m.look, m.opt.containers).Rows) }

// The lines beside the rows: what it is, how it is ordered, the titles, and the keys.
const topFrame = 4

// rowsShown returns how many rows the window has room for.
func (m topScreen) rowsShown() int { return max(m.height-topFrame, 1) }

// scrolled moves by so many rows, as far as there are some.
func (m topScreen) scrolled(by int) topScreen {
	m.first = max(min(m.first+by, m.rows()-m.rowsShown()), 0)
	return m
}

// View is part of tea.Model.
func (m topScreen) View() tea.View {
	v := tea.NewView(m.render())
	v.AltScreen = true
	v.WindowTitle = "berth top " + m.opt.view
	return v
}

// keys are what the last line says, the weightiest first.
const keys = "q quit  tab view  s sort  r reverse  o containers  space pause  ↑↓ scroll  ? keys"

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
	color := m.app.Colors(m.app.Stdout)
	paint := func(text, c string) string {
		if !color {
			return text
		}
		return output.Colored(text, c)
	}
	var tabs []string
	for i, v := range topViews() {
		if v == m.opt.view {
			v = "[" + v + "]"
		}
		tabs = append(tabs, fmt.Sprintf("%d %s", i+1, v))
	}
	lines := []string{clip(strings.Join(tabs, "  ")+"  "+m.headline(), m.width), m.state(paint)}
	switch {
	case m.help:
		for line := range strings.Lines(helpText) {
			lines = append(lines, clip(strings.TrimSuffix(line, "\n"), m.width))
		}
	case m.seen.IsZero() || m.look.empty() != "":
	default:
		lines = append(lines, m.table(color)...)
	}
	lines = lines[:min(len(lines), max(m.height-1, 1))]
	for len(lines) < m.height-1 {
		lines = append(lines, "")
	}
	if m.height > 1 {
		lines = append(lines, paint(clip(keys, m.width), output.Grey))
	}
	return strings.Join(lines, "\n")
}

// headline says what is seen.
func (m topScreen) headline() string {
	switch {
	case m.seen.IsZero() && m.trouble != "":
		return ""
	case m.seen.IsZero():
		return "looking …"
	case m.look.empty() != "":
		return m.look.empty()
	}
	return m.look.headline()
}

// state says how the screen is ordered, or that the server is lost and since when.
func (m topScreen) state(paint func(text, color string) string) string {
	if m.trouble != "" {
		text := m.trouble
		if !m.seen.IsZero() {
			text = "as it was " + m.app.Age(m.seen) + " ago: " + text
		}
		return paint(clip(text, m.width), output.Red)
	}
	text := "by " + m.opt.by
	if m.least {
		text += ", the least first"
	}
	if m.paused {
		text += "; paused"
	} else {
		text += ", every " + m.opt.every.String()
	}
	if n, shown := m.rows(), m.rowsShown(); n > shown {
		text += fmt.Sprintf("; %d to %d of %d", m.first+1, min(m.first+shown, n), n)
	}
	return clip(text, m.width)
}

// table returns the titles and the rows that there is room for.
func (m topScreen) table(color bool) []string {
	look := m.look
	look.nodes, look.tasks, look.owned = slices.Clone(look.nodes), slices.Clone(look.tasks), slices.Clone(look.owned)
	look.sort(m.opt.by, m.least)
	t := topTableOf(m.app, look, m.opt.containers)
	wide := m.app.Format == output.OutputWide
	t = t.Fit(m.width, 3, wide)
	text := strings.TrimSuffix(t.Render(output.Layout{Wide: wide, Color: color}), "\n")
	all := strings.Split(text, "\n")
	for i := range all {
		if utf8.RuneCountInString(stripped(all[i])) > m.width {
			all[i] = clip(stripped(all[i]), m.width)
		}
	}
	if color { // the titles stand out
		all[0] = output.Colored(all[0]+strings.Repeat(" ", max(m.width-utf8.RuneCountInString(all[0]), 0)), "7")
	}
	rows := all[1:]
	return append(all[:1:1], rows[min(m.first, len(rows)):min(m.first+m.rowsShown(), len(rows))]...)
}

// stripped takes the colours out of a line.
func stripped(line string) string {
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

package agentapi

import (
	"math"
	"net/http"
	"regexp"
	"time"

	"github.com/berthd/berth/internal/apiserver/respond"
	"github.com/berthd/berth/internal/apiserver/route"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// inputStall is how long a node may leave unread what a client copies to it or sends to a port. During that time the
// server does not notice that the client has gone.
const inputStall = 10 * time.Minute

// TerminalRoutes returns the interactive operations on one container, each over a websocket.
func (a *ExecAPI) TerminalRoutes() []route.Route {
	own := func(more ...route.Parameter) []route.Parameter {
		return append([]route.Parameter{
			route.QueryParam("attempt", "integer", "the attempt's number; default the newest"),
			route.QueryParam("container", "string", "the container's name; default the first essential one"),
		}, more...)
	}
	path := route.QueryParam(
		"path", "string",
		"the file or folder as the container's program sees it; one that does not begin with / is below its "+
			"working folder",
	)
	const ws = http.StatusSwitchingProtocols
	return []route.Route{
		{
			Method: "GET", Path: "/v1/tasks/{task}/terminal", Name: "openTerminal", Role: cluster.RoleSubmitter,
			Audited: true,
			Status:  ws, Long: true,
			Summary: "Runs a command on a terminal in a container, over a websocket. Each binary message " +
				"begins with its channel: 0 what is typed, 4 a size of the terminal as JSON, 1 what it " +
				"shows, 3 the end as JSON.",
			Query: own(route.QueryParam("command", "array", "the command and its arguments, one each"),
				route.QueryParam("rows", "integer", "the terminal's size"),
				route.QueryParam("columns", "integer", "the terminal's size"),
				route.QueryParam("type", "string", "the value of TERM, such as xterm-256color")),
			Serve: a.openTerminal,
		},
		{
			Method: "GET", Path: "/v1/tasks/{task}/forward", Name: "forwardPort", Role: cluster.RoleSubmitter,
			Audited: true,
			Status:  ws, Long: true,
			Summary: "Carries one connection to a port of a container, over a websocket. Each binary " +
				"message begins with its channel: 0 to the port (alone: its end), 1 from the port (alone: " +
				"its end), 3 the end as JSON.",
			Query: own(route.QueryParam("port", "string", "the name of one of the task's ports, or a number")),
			Serve: a.forwardPort,
		},
		{
			Method: "GET", Path: "/v1/tasks/{task}/copy-out", Name: "copyOut", Role: cluster.RoleSubmitter,
			Audited: true,
			Status:  ws, Long: true,
			Summary: "Sends a file or folder of a container as a tar archive, over a websocket. Each binary " +
				"message begins with its channel: 1 the archive, 2 what is left out, a line each, 3 the end as JSON.",
			Query: own(path, route.QueryParam("follow", "boolean", "copy what links point to instead of the links")),
			Serve: a.copyOut,
		},
		{
			Method: "GET", Path: "/v1/tasks/{task}/copy-in", Name: "copyIn", Role: cluster.RoleSubmitter,
			Audited: true, Status: ws,
			Long: true,
			Summary: "Unpacks a tar archive in a container, over a websocket. Each binary message begins " +
				"with its channel: 0 the archive (alone: its end), 1 what came of it as JSON, 3 the end as JSON.",
			Query: own(path), Serve: a.copyIn,
		},
		{
			Method: "GET", Path: "/v1/tasks/{task}/attach", Name: "attach", Role: cluster.RoleSubmitter, Audited: true,
			Status: ws,
			Long:   true,
			Summary: "The output of a running container as it comes, over a websocket, until it ends. Each " +
				"binary message begins with its channel: 5 a signal for its program such as INT, 1 output, " +
				"2 error output, 3 the end as JSON.",
			Query: own(route.QueryParam("tail", "integer", "begin with this many of the newest lines; default none")),
			Serve: a.attach,
		},
	}
}

// terminalTypes matches the values of TERM that are passed on.
var terminalTypes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

func (a *ExecAPI) openTerminal(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	ask := transport.TerminalRequest{Command: q["command"], Type: q.Get("type")}
	if len(ask.Command) == 0 || ask.Command[0] == "" {
		return route.BadQuery("command", "is missing: give the command to run")
	}
	if ask.Type != "" && !terminalTypes.MatchString(ask.Type) {
		return route.BadQuery("type", "is %q, which is not a terminal type", respond.Clip(ask.Type))
	}
	// order-free: one fault is returned, whichever it is
	for name, to := range map[string]*uint16{"rows": &ask.Size.Rows, "columns": &ask.Size.Columns} {
		n, err := route.Number(r, name, 0)
		if err != nil {
			return err
		}
		if n > math.MaxUint16 {
			return route.BadQuery(name, "is %d, at most %d is allowed", n, math.MaxUint16)
		}
		*to = uint16(n)
	}
	return a.carryFrames(w, r, carriedStream{
		StreamRequest: transport.StreamRequest{Kind: transport.StreamTerminal, Terminal: &ask},
		also:          transport.ChannelResize,
	})
}

func (a *ExecAPI) forwardPort(w http.ResponseWriter, r *http.Request) error {
	port := r.URL.Query().Get("port")
	if port == "" {
		return route.BadQuery("port", "is missing: a name or a number")
	}
	return a.carryFrames(w, r, carriedStream{
		StreamRequest: transport.StreamRequest{
			Kind:    transport.StreamForward,
			Forward: &transport.ForwardRequest{Port: port},
		}, stall: inputStall,
	})
}

func (a *ExecAPI) copyOut(w http.ResponseWriter, r *http.Request) error {
	return a.copyFiles(w, r, transport.StreamCopyOut)
}

func (a *ExecAPI) copyIn(w http.ResponseWriter, r *http.Request) error {
	return a.copyFiles(w, r, transport.StreamCopyIn)
}

func (a *ExecAPI) copyFiles(w http.ResponseWriter, r *http.Request, kind transport.StreamKind) error {
	path := r.URL.Query().Get("path")
	if path == "" {
		return route.BadQuery("path", "is missing: a file or folder of the container")
	}
	return a.carryFrames(w, r, carriedStream{
		StreamRequest: transport.StreamRequest{
			Kind: kind,
			Copy: &transport.CopyRequest{Path: path, Follow: route.Flag(r, "follow")},
		}, stall: inputStall,
	})
}

func (a *ExecAPI) attach(w http.ResponseWriter, r *http.Request) error {
	tail, err := route.Number(r, "tail", 0)
	if err != nil {
		return err
	}
	return a.carryFrames(w, r, carriedStream{
		StreamRequest: transport.StreamRequest{
			Kind:   transport.StreamAttach,
			Attach: &transport.AttachRequest{Tail: int(min(tail, math.MaxInt32))},
		},
		also: transport.ChannelSignal,
	})
}

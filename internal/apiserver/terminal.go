package apiserver

import (
	"math"
	"net/http"
	"regexp"
	"time"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// inputStall is how long a node may take nothing of what is copied to it, or sent to a port. Meanwhile nobody hears
// that the client went away.
const inputStall = 10 * time.Minute

// terminalRoutes are what people do at their terminals with one container, each over a websocket.
func (a *execAPI) terminalRoutes() []route {
	own := func(more ...parameter) []parameter {
		return append([]parameter{
			queryParam("attempt", "integer", "the attempt's number; default the newest"),
			queryParam("container", "string", "the container's name; default the first essential one"),
		}, more...)
	}
	path := queryParam(
		"path", "string",
		"the file or folder as the container's program sees it; one that does not begin with / is below the "+
			"folder that it stands in",
	)
	const ws = http.StatusSwitchingProtocols
	return []route{
		{
			method: "GET", path: "/v1/tasks/{task}/terminal", name: "openTerminal", role: cluster.RoleSubmitter,
			audited: true,
			status:  ws, long: true,
			summary: "Runs a command on a terminal in a container, over a websocket. Each binary message " +
				"begins with its channel: 0 what is typed, 4 a size of the terminal as JSON, 1 what it " +
				"shows, 3 the end as JSON.",
			query: own(queryParam("command", "array", "the command and its arguments, one each"),
				queryParam("rows", "integer", "the terminal's size"),
				queryParam("columns", "integer", "the terminal's size"),
				queryParam("type", "string", "what TERM says, such as xterm-256color")),
			serve: a.openTerminal,
		},
		{
			method: "GET", path: "/v1/tasks/{task}/forward", name: "forwardPort", role: cluster.RoleSubmitter,
			audited: true,
			status:  ws, long: true,
			summary: "Carries one connection to a port of a container, over a websocket. Each binary " +
				"message begins with its channel: 0 to the port (alone: its end), 1 from the port (alone: " +
				"its end), 3 the end as JSON.",
			query: own(queryParam("port", "string", "the name of one of the task's ports, or a number")),
			serve: a.forwardPort,
		},
		{
			method: "GET", path: "/v1/tasks/{task}/copy-out", name: "copyOut", role: cluster.RoleSubmitter,
			audited: true,
			status:  ws, long: true,
			summary: "Sends a file or folder of a container as a tar archive, over a websocket. Each binary " +
				"message begins with its channel: 1 the archive, 2 what is left out, a line each, 3 the end as JSON.",
			query: own(path, queryParam("follow", "boolean", "copy what links point to instead of the links")),
			serve: a.copyOut,
		},
		{
			method: "GET", path: "/v1/tasks/{task}/copy-in", name: "copyIn", role: cluster.RoleSubmitter,
			audited: true, status: ws,
			long: true,
			summary: "Unpacks a tar archive in a container, over a websocket. Each binary message begins " +
				"with its channel: 0 the archive (alone: its end), 1 what came of it as JSON, 3 the end as JSON.",
			query: own(path), serve: a.copyIn,
		},
		{
			method: "GET", path: "/v1/tasks/{task}/attach", name: "attach", role: cluster.RoleSubmitter, audited: true,
			status: ws,
			long:   true,
			summary: "The output of a running container as it comes, over a websocket, until it ends. Each " +
				"binary message begins with its channel: 5 a signal for its program such as INT, 1 output, " +
				"2 error output, 3 the end as JSON.",
			query: own(queryParam("tail", "integer", "begin with this many of the newest lines; default none")),
			serve: a.attach,
		},
	}
}

// terminalTypes are the values of TERM that are passed on.
var terminalTypes = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`)

func (a *execAPI) openTerminal(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	ask := transport.TerminalRequest{Command: q["command"], Type: q.Get("type")}
	if len(ask.Command) == 0 || ask.Command[0] == "" {
		return badQuery("command", "is missing: what is to be run")
	}
	if ask.Type != "" && !terminalTypes.MatchString(ask.Type) {
		return badQuery("type", "is %q, which is no type of a terminal", clip(ask.Type))
	}
	// order-free: either is told of
	for name, to := range map[string]*uint16{"rows": &ask.Size.Rows, "columns": &ask.Size.Columns} {
		n, err := number(r, name, 0)
		if err != nil {
			return err
		}
		if n > math.MaxUint16 {
			return badQuery(name, "is %d, at most %d is allowed", n, math.MaxUint16)
		}
		*to = uint16(n)
	}
	return a.carryFrames(w, r, carried{
		StreamRequest: transport.StreamRequest{Kind: transport.StreamTerminal, Terminal: &ask},
		also:          transport.ChannelResize,
	})
}

func (a *execAPI) forwardPort(w http.ResponseWriter, r *http.Request) error {
	port := r.URL.Query().Get("port")
	if port == "" {
		return badQuery("port", "is missing: a name or a number")
	}
	return a.carryFrames(w, r, carried{
		StreamRequest: transport.StreamRequest{
			Kind:    transport.StreamForward,
			Forward: &transport.ForwardRequest{Port: port},
		}, stall: inputStall,
	})
}

func (a *execAPI) copyOut(w http.ResponseWriter, r *http.Request) error {
	return a.copyFiles(w, r, transport.StreamCopyOut)
}

func (a *execAPI) copyIn(w http.ResponseWriter, r *http.Request) error {
	return a.copyFiles(w, r, transport.StreamCopyIn)
}

func (a *execAPI) copyFiles(w http.ResponseWriter, r *http.Request, kind transport.StreamKind) error {
	path := r.URL.Query().Get("path")
	if path == "" {
		return badQuery("path", "is missing: a file or folder of the container")
	}
	return a.carryFrames(w, r, carried{
		StreamRequest: transport.StreamRequest{
			Kind: kind,
			Copy: &transport.CopyRequest{Path: path, Follow: given(r, "follow")},
		}, stall: inputStall,
	})
}

func (a *execAPI) attach(w http.ResponseWriter, r *http.Request) error {
	tail, err := number(r, "tail", 0)
	if err != nil {
		return err
	}
	return a.carryFrames(w, r, carried{
		StreamRequest: transport.StreamRequest{
			Kind:   transport.StreamAttach,
			Attach: &transport.AttachRequest{Tail: int(min(tail, math.MaxInt32))},
		},
		also: transport.ChannelSignal,
	})
}

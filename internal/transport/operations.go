package transport

import (
	"net/http"
	"reflect"
)

// Operation is one request of the protocol. Handler serves all operations, and the OpenAPI document describes them.
type Operation struct {
	Name, Method, Path, Summary string
	Request, Reply              reflect.Type // types of JSON bodies; nil for none
	// Line is the type of the lines of an answer that is a stream of NDJSON, nil for other answers.
	Line reflect.Type
	// IsBytes says that both bodies are streams of bytes.
	IsBytes bool

	serve func(Dispatch) http.HandlerFunc
}

// Operations returns all requests of the protocol.
func Operations() []Operation {
	return []Operation{
		{
			Name: "register", Method: http.MethodPost, Path: PathRegister,
			Summary: "Begins a session with the whole state of the node. 409 names the newest session, which the " +
				"next registration names as its previous one.",
			Request: reflect.TypeFor[Registration](), Reply: reflect.TypeFor[Welcome](),
			serve: func(d Dispatch) http.HandlerFunc { return answer(d.Register) },
		},
		{
			Name: "assignments", Method: http.MethodPost, Path: PathAssignments,
			Summary: "Opens the assignment stream of a session: a line for each message. It replaces the session's " +
				"former stream.",
			Request: reflect.TypeFor[AssignmentsForm](), Line: reflect.TypeFor[StreamLine](),
			serve: func(d Dispatch) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { handleAssign(d, w, r) }
			},
		},
		{
			Name: "report", Method: http.MethodPost, Path: PathReport,
			Summary: "Reports what changed on the node. The answer comes once all that must be durable is durable.",
			Request: reflect.TypeFor[Report](), Reply: reflect.TypeFor[ReportReply](),
			serve: func(d Dispatch) http.HandlerFunc { return answer(d.Report) },
		},
		{
			Name: "beat", Method: http.MethodPost, Path: PathBeat + "{node}/{session}/{seq}",
			Summary: "A report without content. 204 has the reply in the headers Berth-Heartbeat, in milliseconds, " +
				"and Berth-Token, as generation.incarnation.epoch. 200 has it in the body, if it holds more.",
			Reply: reflect.TypeFor[ReportReply](),
			serve: handleBeat,
		},
		{
			Name: "secrets", Method: http.MethodPost, Path: PathSecrets,
			Summary: "The secrets of one attempt on the node.",
			Request: reflect.TypeFor[SecretsRequest](), Reply: reflect.TypeFor[SecretsReply](),
			serve: handleSecrets,
		},
		{
			Name: "addresses", Method: http.MethodPost, Path: PathAddresses,
			Summary: "Waits until the healthy addresses of services differ from what the agent knows, for a minute " +
				"at most.",
			Request: reflect.TypeFor[AddressesRequest](), Reply: reflect.TypeFor[AddressesReply](),
			serve: handleAddresses,
		},
		{
			Name: "stream", Method: http.MethodPost, Path: PathStream + "{id}",
			Summary: "Opens the byte stream that a message of the assignment stream requested.",
			IsBytes: true,
			serve: func(d Dispatch) http.HandlerFunc {
				return func(w http.ResponseWriter, r *http.Request) { handleCarry(d, w, r) }
			},
		},
		{
			Name: "alive", Method: http.MethodGet, Path: PathAlive,
			Summary: "Answers immediately with 204: the server does not hang.",
			serve: func(Dispatch) http.HandlerFunc {
				return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }
			},
		},
	}
}

package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// TaskCommand is what another program may write at the key state/<node>/<task>, in a domain whose scheduler has the
// type kv. Without Stop it starts a pending task on the node, or moves a running task of a service there. With Stop it
// ends the attempt that is on the node. Every field may be left out. Other fields mean nothing, so a program may change
// a copy of the record that Berth wrote.
type TaskCommand struct {
	// Task and Node, unless empty, are those of the key.
	Task TaskID `json:"task,omitempty"`
	Node string `json:"node,omitempty"`
	// Attempt, unless 0, is the number of the attempt that is to start or to end.
	Attempt int `json:"attempt,omitempty"`
	// UUID, unless empty, identifies the attempt that is to end.
	UUID string `json:"uuid,omitempty"`
	// Stop ends the attempt. Anything but false and null means true.
	Stop StopCommand `json:"stop,omitempty"`
	// Reason is for people: events and explanations show it.
	Reason string `json:"reason,omitempty"`
}

// StopCommand says that an attempt is to end. The stop of a record that Berth wrote counts as true.
type StopCommand bool

// UnmarshalJSON is part of json.Unmarshaler.
func (s *StopCommand) UnmarshalJSON(text []byte) error {
	*s = string(text) != "null" && string(text) != "false"
	return nil
}

// maxCommandFault bounds what is said of a value that cannot be read, in bytes.
const maxCommandFault = 200

// ReadTaskCommand reads the value of a record at the key of a task on a node. An empty value is a command without
// fields.
func ReadTaskCommand(node string, task TaskID, value []byte) (TaskCommand, error) {
	var c TaskCommand
	if trimmed := bytes.TrimSpace(value); len(trimmed) > 0 {
		if trimmed[0] != '{' {
			return TaskCommand{}, errors.New("the record is no command: it is no JSON object")
		}
		if err := json.Unmarshal(value, &c); err != nil {
			text := err.Error() // it may quote the value
			return TaskCommand{}, fmt.Errorf("the record is no command: %s", text[:min(len(text), maxCommandFault)])
		}
	}
	k := newCheck()
	k.at("task").must(c.Task == "" || c.Task == task, "is %q, and the key says %s", clip(string(c.Task)), task)
	k.at("node").must(c.Node == "" || c.Node == node, "is %q, and the key says %s", clip(c.Node), node)
	k.at("attempt").must(c.Attempt >= 0, "is %d, want the number of an attempt, from 1", c.Attempt)
	k.at("uuid").must(len(c.UUID) <= maxProposalUUID, "has %d bytes, want at most %d", len(c.UUID), maxProposalUUID)
	k.at("reason").must(len(c.Reason) <= MaxProposalReason && printable(c.Reason),
		"is not one line of at most %d bytes", MaxProposalReason)
	return c, k.err()
}

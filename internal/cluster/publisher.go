package cluster

import "time"

// Publisher is how far the event log was sent to one system outside of Berth: the record publisher/<name> (P8.2).
// Writer: the part of the leader that sends to this system. A system without a record keeps no events in the log.
type Publisher struct {
	Name string `json:"name"`
	// Cursor is the id of the last batch of events that the system acknowledged, or that is counted in Lost. It is
	// empty if the log was empty when the publisher began. CursorAt is the time of that batch.
	Cursor   string    `json:"cursor,omitempty"`
	CursorAt time.Time `json:"cursor_at,omitzero"`
	// Position is the number of batches in the log up to the cursor, with all that were trimmed since the store began.
	Position uint64 `json:"position"`
	// At is when the cursor last moved.
	At time.Time `json:"at"`
	// Lost is the number of batches that were trimmed before the system acknowledged them, since the publisher began.
	// LostAt is when the last of them were counted.
	Lost   uint64    `json:"lost,omitempty"`
	LostAt time.Time `json:"lost_at,omitzero"`
}

// EventTrim is how far the event log was trimmed: the record trim/event (P8.2). Writer: the control plane, in the
// transaction that deletes the batches. There is no record before the first one.
type EventTrim struct {
	// Batches is the number of batches that were trimmed since the store began.
	Batches uint64 `json:"batches"`
	// Last is the id of the newest of them, and LastAt its time.
	Last   string    `json:"last"`
	LastAt time.Time `json:"last_at"`
}

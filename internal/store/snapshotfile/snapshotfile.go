// Package snapshotfile is the format of a snapshot: the records under one prefix of a store, at one revision. The
// format belongs to no engine, so a snapshot of one engine restores on another (ADR 0084).
//
// A file is lines of JSON. The first line is the header, here on two lines:
//
//	{"format":"berth-snapshot","version":1,"prefix":"berth/","revision":812,
//	 "time":"2026-11-26T09:00:00Z","berth":"0.1.0"}
//
// A line for each record follows, in the order of the bytes of the keys:
//
//	{"key":"berth/cluster/default","created":3,"modified":9,"value":"{\"v\":1,\"name\":\"default\"}"}
//
// A key or a value that is no UTF-8 is in base64 instead, in the field "key64" or "value64". The last line has the
// number of records, and the SHA-256 of all lines before it:
//
//	{"records":1,"sha256":"0f…"}
//
// A snapshot holds no deletions and no leases. A restored store has no watch that could ask for an earlier deletion. A
// record with a lease ends with the process that holds the lease, and no process holds one after a restore. Berth keeps
// such records outside of the prefix that it saves.
//
// A Writer and a Reader hold one record at a time.
package snapshotfile

import (
	"fmt"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/version"
)

const (
	// formatName is the value of the field "format".
	formatName = "berth-snapshot"
	// formatVersion is the newest version of the format that this build reads, and the version that it writes.
	formatVersion = 1
	// maxLineBytes limits the length of a line. The largest record of an engine, escaped byte by byte, is shorter.
	maxLineBytes = 64 << 20
)

// Header describes a snapshot. Revision is the revision of the engine at which all records stood together. Time and
// Build are the clock and the version of the process that wrote the snapshot.
type Header struct {
	Prefix   string
	Revision uint64
	Time     time.Time
	Build    string
}

// NewHeader returns the header of a snapshot that this process writes now.
func NewHeader(prefix string, revision uint64) Header {
	return Header{Prefix: prefix, Revision: revision, Time: time.Now().UTC(), Build: version.String()}
}

// headerLine is the first line.
type headerLine struct {
	Format   string    `json:"format"`
	Version  int       `json:"version"`
	Prefix   string    `json:"prefix"`
	Revision uint64    `json:"revision"`
	Time     time.Time `json:"time"`
	Build    string    `json:"berth"`
}

// recordLine is the line of a record. Key and Value are UTF-8; otherwise Key64 and Value64 hold the bytes.
type recordLine struct {
	Key      string `json:"key,omitempty"`
	Key64    []byte `json:"key64,omitempty"`
	Created  uint64 `json:"created"`
	Modified uint64 `json:"modified"`
	Value    string `json:"value,omitempty"`
	Value64  []byte `json:"value64,omitempty"`
}

// trailerLine is the last line.
type trailerLine struct {
	Records int    `json:"records"`
	SHA256  string `json:"sha256"`
}

// headerStart and trailerStart are how the first and the last line begin. No other line begins so.
const (
	headerStart  = `{"format":"` + formatName + `"`
	trailerStart = `{"records":`
)

// A FileError says what is wrong with a file, and where. It is a store.ErrInvalid.
type FileError struct {
	// Line counts from 1. Offset is that of the line's first byte.
	Line   int
	Offset int64
	// Reason is a clause, such as "the file ends after 3 records: it is cut short".
	Reason string
}

// Error returns the place and the reason.
func (e *FileError) Error() string {
	return fmt.Sprintf("line %d (byte %d): %s", e.Line, e.Offset, e.Reason)
}

// Is makes a FileError a store.ErrInvalid.
func (*FileError) Is(target error) bool { return target == store.ErrInvalid }

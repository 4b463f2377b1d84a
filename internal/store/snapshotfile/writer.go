package snapshotfile

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/berthd/berth/internal/store"
)

// bufferBytes is the size of the buffers of a Writer and a Reader.
const bufferBytes = 64 << 10

// Writer writes one snapshot. The file is complete after a Close without an error. It is for one goroutine.
type Writer struct {
	header  Header
	to      *bufio.Writer
	sum     hash.Hash
	encoder *json.Encoder // writes to both
	records int
	last    string // the key of the last record
}

// NewWriter begins a snapshot. It writes nothing to the writer before a buffer is full.
func NewWriter(to io.Writer, h Header) (*Writer, error) {
	if err := store.CheckPrefix(h.Prefix); err != nil {
		return nil, err
	}
	w := &Writer{header: h, to: bufio.NewWriterSize(to, bufferBytes), sum: sha256.New()}
	w.encoder = json.NewEncoder(io.MultiWriter(w.to, w.sum))
	w.encoder.SetEscapeHTML(false)
	err := w.encode(headerLine{
		Format: formatName, Version: formatVersion, Prefix: h.Prefix, Revision: h.Revision, Time: h.Time.UTC(),
		Build: h.Build,
	})
	if err != nil {
		return nil, err
	}
	return w, nil
}

// Add adds a record. Its key is under the prefix, and after the keys before it. Its revisions are not above that of the
// header.
func (w *Writer) Add(r store.Record) error {
	if fault := checkRecord(w.header, w.last, r); fault != "" {
		return fmt.Errorf("write snapshot: %s: %w", fault, store.ErrInvalid)
	}
	line := recordLine{Created: r.Created, Modified: r.Modified}
	if utf8.ValidString(r.Key) {
		line.Key = r.Key
	} else {
		line.Key64 = []byte(r.Key)
	}
	if utf8.Valid(r.Value) {
		line.Value = string(r.Value)
	} else {
		line.Value64 = r.Value
	}
	w.last = r.Key
	w.records++
	return w.encode(line)
}

// Close completes the snapshot. It does not close the writer below.
func (w *Writer) Close() error {
	// The sum in the last line does not cover the last line itself.
	if err := w.encode(trailerLine{w.records, hex.EncodeToString(w.sum.Sum(nil))}); err != nil {
		return err
	}
	if err := w.to.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// encode writes a line.
func (w *Writer) encode(line any) error {
	if err := w.encoder.Encode(line); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}

// checkRecord returns what is wrong with a record that follows the record with the key last, or "".
func checkRecord(h Header, last string, r store.Record) string {
	switch {
	case r.Key == "":
		return "a record has no key"
	case !strings.HasPrefix(r.Key, h.Prefix):
		return fmt.Sprintf("the key %q is not under the prefix %q", r.Key, h.Prefix)
	case r.Key <= last:
		return fmt.Sprintf("the key %q comes after %q: the records are not in the order of their keys", r.Key, last)
	case r.Created == 0 || r.Created > r.Modified || r.Modified > h.Revision:
		return fmt.Sprintf("the key %q has the revisions %d and %d, which do not fit the revision %d of the snapshot",
			r.Key, r.Created, r.Modified, h.Revision)
	}
	return ""
}

// Write writes a whole snapshot: the records of a listing in the order of their keys.
func Write(to io.Writer, h Header, records []store.Record) error {
	w, err := NewWriter(to, h)
	if err != nil {
		return err
	}
	for _, r := range records {
		if err := w.Add(r); err != nil {
			return err
		}
	}
	return w.Close()
}

package snapshotfile

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/berthd/berth/internal/store"
)

// Reader reads one snapshot. No record may be believed before Next has returned io.EOF: only the last line shows that
// the file is whole. A Reader is for one goroutine.
type Reader struct {
	header Header
	from   *bufio.Reader
	sum    hash.Hash // of the lines so far
	line   int       // the number of the current line
	begin  int64     // the offset of the current line
	end    int64     // the offset behind the current line

	records int
	last    string // the key of the last record
	hash    string // as the last line states it
	err     error  // of the last Next
}

// NewReader reads the header of a snapshot. Faults of the file are of type *FileError.
func NewReader(from io.Reader) (*Reader, error) {
	r := &Reader{from: bufio.NewReaderSize(from, bufferBytes), sum: sha256.New()}
	if err := r.readHeader(); err != nil {
		return nil, err
	}
	return r, nil
}

// Header returns the header.
func (r *Reader) Header() Header { return r.header }

// Hash returns the SHA-256 in the last line, in hex, and "" before Next has returned io.EOF.
func (r *Reader) Hash() string { return r.hash }

// Bytes returns the number of bytes so far; after io.EOF, the size of the file.
func (r *Reader) Bytes() int64 { return r.end }

// Next returns the next record. It returns io.EOF after the last record, once the last line has confirmed the number of
// records and their hash, and nothing follows. A fault of the file is a *FileError.
func (r *Reader) Next() (store.Record, error) {
	if r.err != nil {
		return store.Record{}, r.err
	}
	record, err := r.next()
	r.err = err
	return record, err
}

func (r *Reader) next() (store.Record, error) {
	content, err := r.readLine()
	switch {
	case errors.Is(err, io.EOF):
		return store.Record{}, r.fault(
			"the file ends here, after %d records and without its last line: it is cut short", r.records)
	case err != nil:
		return store.Record{}, err
	case bytes.HasPrefix(content, []byte(trailerStart)):
		return store.Record{}, r.readTrailer(content)
	}
	var line recordLine
	if err := decodeStrictly(content, &line); err != nil {
		return store.Record{}, r.fault("it is no record: the file was altered: %v", err)
	}
	record := store.Record{
		Key: line.Key, Value: []byte(line.Value), Created: line.Created, Modified: line.Modified,
	}
	if line.Key64 != nil {
		record.Key = string(line.Key64)
	}
	if line.Value64 != nil {
		record.Value = line.Value64
	}
	if fault := checkRecord(r.header, r.last, record); fault != "" {
		return store.Record{}, r.fault("%s: the file was altered", fault)
	}
	r.sum.Write(content)
	r.last = record.Key
	r.records++
	return record, nil
}

// readHeader reads the first line.
func (r *Reader) readHeader() error {
	content, err := r.readLine()
	switch {
	case errors.Is(err, io.EOF):
		return r.fault("the file is empty")
	case err != nil:
		return err
	}
	if bytes.HasPrefix(content, []byte(headerStart)) && !bytes.HasSuffix(content, []byte("\n")) {
		return r.fault("the file ends in its header: it is cut short")
	}
	var line headerLine
	// A newer version may have more fields, so unknown ones are ignored until the version is known.
	if err := json.Unmarshal(content, &line); err != nil || line.Format != formatName {
		return r.fault("it is no snapshot of Berth: the first line is not its header%s", describeForeign(content))
	}
	if line.Version != formatVersion {
		return r.fault("the snapshot has version %d of the format, and this build reads version %d: use the build "+
			"that wrote it, %s", line.Version, formatVersion, line.Build)
	}
	if err := decodeStrictly(content, &line); err != nil {
		return r.fault("the header was altered: %v", err)
	}
	if err := store.CheckPrefix(line.Prefix); err != nil {
		return r.fault("the header was altered: %v", err)
	}
	r.header = Header{Prefix: line.Prefix, Revision: line.Revision, Time: line.Time, Build: line.Build}
	r.sum.Write(content)
	return nil
}

// readTrailer checks the last line, and returns io.EOF if the file is whole.
func (r *Reader) readTrailer(content []byte) error {
	var line trailerLine
	if err := decodeStrictly(content, &line); err != nil {
		return r.fault("the last line was altered: %v", err)
	}
	if line.Records != r.records {
		return r.fault("the last line counts %d records, and %d are before it: lines are missing or were added",
			line.Records, r.records)
	}
	sum := hex.EncodeToString(r.sum.Sum(nil))
	if line.SHA256 != sum {
		return r.fault("the lines before have the SHA-256 %s, and this line states %s: the file was altered", sum,
			line.SHA256)
	}
	if string(content) != fmt.Sprintf(`{"records":%d,"sha256":"%s"}`+"\n", r.records, sum) {
		return r.fault("the last line was altered")
	}
	if _, err := r.from.ReadByte(); !errors.Is(err, io.EOF) {
		r.line, r.begin = r.line+1, r.end
		if err != nil {
			return fmt.Errorf("read snapshot: %w", err)
		}
		return r.fault("data follow the last line of the snapshot: the file was altered")
	}
	r.hash = line.SHA256
	return io.EOF
}

// readLine returns the next line with its end. It returns io.EOF at the end of the file.
func (r *Reader) readLine() ([]byte, error) {
	r.line, r.begin = r.line+1, r.end
	var content []byte
	for {
		part, err := r.from.ReadSlice('\n')
		r.end += int64(len(part))
		if err == nil && content == nil {
			return part, nil // valid until the next read
		}
		content = append(content, part...)
		switch {
		case err == nil:
			return content, nil
		case len(content) > maxLineBytes:
			return nil, r.fault("the line is longer than %d bytes%s", maxLineBytes, describeForeign(content))
		case errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, io.EOF) && len(content) == 0:
			return nil, io.EOF
		case errors.Is(err, io.EOF) && r.line == 1:
			return content, nil // readHeader says what the file is instead
		case errors.Is(err, io.EOF):
			return nil, r.fault("the file ends in the middle of this line: it is cut short")
		default:
			return nil, fmt.Errorf("read snapshot: %w", err)
		}
	}
}

// fault returns an error about the current line.
func (r *Reader) fault(format string, args ...any) error {
	return &FileError{Line: r.line, Offset: r.begin, Reason: fmt.Sprintf(format, args...)}
}

// etcdMagic are the bytes at etcdMagicOffset of a snapshot of etcd.
const (
	etcdMagic       = "\xed\xda\x0c\xed"
	etcdMagicOffset = 16
)

// describeForeign says what a file without a header is, as a clause after a colon, or returns "".
func describeForeign(content []byte) string {
	if len(content) >= etcdMagicOffset+len(etcdMagic) &&
		string(content[etcdMagicOffset:etcdMagicOffset+len(etcdMagic)]) == etcdMagic {
		return ": it is a snapshot of etcd, as builds of Berth before this format wrote it; restore it with such a " +
			"build, and save a new one there"
	}
	return ""
}

// decodeStrictly decodes the JSON of one line. It refuses unknown fields, and data behind the object.
func decodeStrictly(content []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(content))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if len(bytes.TrimSpace(content[d.InputOffset():])) > 0 {
		return errors.New("data follow the object")
	}
	return nil
}

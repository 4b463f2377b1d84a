package snapshotfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/store/snapshotfile"
)

// header is that of the files in the tests.
func header() snapshotfile.Header {
	return snapshotfile.Header{
		Prefix: "berth/", Revision: 12, Time: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC), Build: "0.1.0",
	}
}

func record(key, value string, created, modified uint64) store.Record {
	return store.Record{Key: key, Value: []byte(value), Created: created, Modified: modified}
}

// sample are records in the order of their keys, with keys and values that are no UTF-8.
func sample() []store.Record {
	return []store.Record{
		record("berth/a", `{"v":1,"name":"<a>"}`, 2, 9),
		record("berth/b", "", 3, 3),
		record("berth/b\x00", "\u2028\ufffd\"\\", 3, 12),
		record("berth/\xff", "\xfe\x00", 4, 5),
	}
}

func write(t *testing.T, h snapshotfile.Header, records []store.Record) string {
	t.Helper()
	var out strings.Builder
	if err := snapshotfile.Write(&out, h, records); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestFormat writes a file. Its text is a public contract.
func TestFormat(t *testing.T) {
	t.Parallel()
	want := `{"format":"berth-snapshot","version":1,"prefix":"berth/","revision":12,"time":"2026-11-26T09:00:00Z",` +
		`"berth":"0.1.0"}
{"key":"berth/a","created":2,"modified":9,"value":"{\"v\":1,\"name\":\"<a>\"}"}
{"key":"berth/b","created":3,"modified":3}
{"key":"berth/b\u0000","created":3,"modified":12,"value":"\u2028` + "\ufffd" + `\"\\"}
{"key64":"YmVydGgv/w==","created":4,"modified":5,"value64":"/gA="}
`
	got := write(t, header(), sample())
	last := strings.LastIndex(strings.TrimSuffix(got, "\n"), "\n") + 1
	if diff := cmp.Diff(want, got[:last]); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(got[last:], `{"records":4,"sha256":"`) {
		t.Errorf("last line: got %s", got[last:])
	}
	records, info, err := snapshotfile.ReadAll(iotest.OneByteReader(strings.NewReader(got)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), records, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	wantInfo := store.SnapshotInfo{
		Revision: 12, Keys: 4, Prefix: "berth/", Saved: header().Time, Build: "0.1.0", Size: int64(len(got)),
	}
	ignored := cmpopts.IgnoreFields(store.SnapshotInfo{}, "Hash", "Nouns", "Leaders")
	if diff := cmp.Diff(wantInfo, info, ignored); diff != "" || !strings.Contains(got[last:], info.Hash) {
		t.Errorf("info (-want +got):\n%s\nhash %q", diff, info.Hash)
	}
}

// TestBrokenFiles reads files that are no snapshots, or no longer. Each error says what is wrong, and where.
func TestBrokenFiles(t *testing.T) {
	t.Parallel()
	whole := write(t, header(), sample())
	lines := strings.SplitAfter(whole, "\n")
	joined := func(parts ...string) string { return strings.Join(parts, "") }
	other := write(t, header(), sample()[:3])
	otherLines := strings.SplitAfter(other, "\n")
	etcd := strings.Repeat("\x00", 16) + "\xed\xda\x0c\xed" + strings.Repeat("\x00", 9000)
	for name, c := range map[string]struct {
		data   string
		line   int
		reason string
	}{
		"empty":                {"", 1, "the file is empty"},
		"foreign":              {"name,cpu\na,1\n", 1, "no snapshot of Berth"},
		"foreign without line": {"text", 1, "no snapshot of Berth"},
		"of etcd":              {etcd, 1, "it is a snapshot of etcd"},
		"cut in the header":    {whole[:40], 1, "ends in its header: it is cut short"},
		"the header alone":     {lines[0], 2, "after 0 records and without its last line: it is cut short"},
		"cut between lines":    {joined(lines[:3]...), 4, "after 2 records and without its last line: it is cut short"},
		"cut in a record":      {joined(lines[:2]...) + lines[2][:9], 3, "ends in the middle of this line"},
		"cut in the last line": {whole[:len(whole)-9], 6, "ends in the middle of this line"},
		"a changed value":      {strings.Replace(whole, "<a>", "<b>", 1), 6, "the file was altered"},
		"a changed revision":   {strings.Replace(whole, `"modified":9`, `"modified":8`, 1), 6, "the file was altered"},
		"an impossible revision": {
			strings.Replace(whole, `"modified":9`, `"modified":13`, 1), 2, "do not fit the revision 12",
		},
		"no revision":      {strings.Replace(whole, `"created":2`, `"created":0`, 1), 2, "do not fit"},
		"a changed header": {strings.Replace(whole, `"revision":12`, `"revision":13`, 1), 6, "the file was altered"},
		"a bad prefix":     {strings.Replace(whole, `"prefix":"berth/"`, `"prefix":"b"`, 1), 1, "the header was altered"},
		"an unknown field": {strings.Replace(whole, `{"key":"berth/a"`, `{"x":1,"key":"berth/a"`, 1), 2, "altered"},
		"no JSON":          {strings.Replace(whole, `{"key":"berth/b"`, `{"key":berth/b"`, 1), 3, "it is no record"},
		"two in one line":  {strings.Replace(whole, "\n"+lines[2], lines[2], 1), 2, "data follow the object"},
		"a missing line":   {joined(lines[0], lines[1], lines[3], lines[4], lines[5]), 5, "counts 4 records, and 3"},
		"an added line":    {joined(otherLines[:4]...) + lines[4] + otherLines[4], 6, "counts 3 records, and 4"},
		"a replaced line": {
			joined(lines[:4]...) + strings.Replace(lines[4], "/gA=", "/gE=", 1) + lines[5], 6, "SHA-256",
		},
		"another last line": {
			joined(lines[:5]...) + strings.Replace(lines[5], `"sha256":"`, `"sha256":"0`, 1), 6, "SHA-256",
		},
		"a last line in another form": {
			joined(lines[:5]...) + strings.Replace(lines[5], `"sha256"`, `"SHA256"`, 1), 6, "last line was altered",
		},
		"a last line with more": {
			joined(lines[:5]...) + strings.Replace(lines[5], `}`, `,"x":1}`, 1), 6, "last line was altered",
		},
		"data at the end": {whole + "\n", 7, "data follow the last line"},
		"two files":       {whole + whole, 7, "data follow the last line"},
		"reordered": {
			joined(lines[0], lines[2], lines[1], lines[3], lines[4], lines[5]), 3, "order of their keys",
		},
		"a doubled line": {
			joined(lines[0], lines[1], lines[1], lines[2], lines[3], lines[5]), 3, "order of their keys",
		},
		"a newer version": {
			strings.Replace(whole, `"version":1`, `"version":2,"more":true`, 1), 1,
			"version 2 of the format, and this build reads version 1: use the build that wrote it, 0.1.0",
		},
		"a foreign key": {
			strings.Replace(whole, `"key":"berth/a"`, `"key":"a"`, 1), 2, `the key "a" is not under the prefix "berth/"`,
		},
		"no key": {strings.Replace(whole, `"key":"berth/a",`, ``, 1), 2, "a record has no key"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			records, _, err := snapshotfile.ReadAll(strings.NewReader(c.data))
			fault, ok := errors.AsType[*snapshotfile.FileError](err)
			if !ok || !errors.Is(err, store.ErrInvalid) || len(records) > 0 {
				t.Fatalf("got %d records and error %v, want a FileError", len(records), err)
			}
			offset := 0
			for _, line := range strings.SplitAfter(c.data, "\n")[:c.line-1] {
				offset += len(line)
			}
			if fault.Line != c.line || fault.Offset != int64(offset) || !strings.Contains(fault.Reason, c.reason) {
				t.Errorf("got line %d, byte %d: %s; want line %d, byte %d: %s", fault.Line, fault.Offset, fault.Reason,
					c.line, offset, c.reason)
			}
		})
	}
}

// TestLongLine refuses a line without an end before it fills the memory.
func TestLongLine(t *testing.T) {
	t.Parallel()
	_, err := snapshotfile.Inspect(endless{})
	if fault, ok := errors.AsType[*snapshotfile.FileError](err); !ok || !strings.Contains(fault.Reason, "longer than") {
		t.Errorf("got error %v, want that the line is too long", err)
	}
}

// endless is a file without an end of a line.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// TestReadFault passes on the error of a disk, which is no fault of the file.
func TestReadFault(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is gone")
	whole := write(t, header(), sample())
	for _, at := range []int{0, 10, 300, len(whole)} {
		from := io.MultiReader(strings.NewReader(whole[:min(at, len(whole))]), iotest.ErrReader(broken))
		if _, err := snapshotfile.Inspect(from); !errors.Is(err, broken) || errors.Is(err, store.ErrInvalid) {
			t.Errorf("after %d bytes: got error %v, want %v", at, err, broken)
		}
	}
}

// TestWriterRefuses writes records that no reader would accept.
func TestWriterRefuses(t *testing.T) {
	t.Parallel()
	for name, second := range map[string]store.Record{
		"the same key":      record("berth/b", "", 2, 2),
		"an earlier key":    record("berth/a", "", 2, 2),
		"a foreign key":     record("other/b", "", 2, 2),
		"no key":            record("", "", 2, 2),
		"a later revision":  record("berth/c", "", 2, 13),
		"no creation":       record("berth/c", "", 0, 2),
		"created afterward": record("berth/c", "", 3, 2),
	} {
		err := snapshotfile.Write(io.Discard, header(), []store.Record{record("berth/b", "", 2, 2), second})
		if !errors.Is(err, store.ErrInvalid) {
			t.Errorf("%s: got error %v, want ErrInvalid", name, err)
		}
	}
	h := header()
	h.Prefix = "berth"
	if _, err := snapshotfile.NewWriter(io.Discard, h); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a prefix without a slash: got error %v", err)
	}
}

// TestRoundTrip reads back what was written, for any keys and values. A flipped bit is always found.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytesOf := rapid.OneOf(rapid.SliceOf(rapid.Byte()), rapid.Map(rapid.String(), func(s string) []byte {
			return []byte(s)
		}))
		values := rapid.MapOf(rapid.Map(bytesOf, func(b []byte) string { return "berth/" + string(b) }), bytesOf).
			Draw(t, "values")
		var records []store.Record
		for key, value := range values { // order-free: sorted below
			modified := rapid.Uint64Range(1, 12).Draw(t, "modified")
			created := rapid.Uint64Range(1, modified).Draw(t, "created")
			records = append(records, store.Record{Key: key, Value: value, Created: created, Modified: modified})
		}
		slices.SortFunc(records, func(a, b store.Record) int { return strings.Compare(a.Key, b.Key) })
		var out bytes.Buffer
		if err := snapshotfile.Write(&out, header(), records); err != nil {
			t.Fatal(err)
		}
		whole := out.Bytes()
		got, _, err := snapshotfile.ReadAll(bytes.NewReader(whole))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(records, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("records (-want +got):\n%s", diff)
		}
		at := rapid.IntRange(0, len(whole)-1).Draw(t, "at")
		whole[at] ^= 1 << rapid.IntRange(0, 7).Draw(t, "bit")
		if _, err := snapshotfile.Inspect(bytes.NewReader(whole)); err == nil {
			t.Fatalf("a flipped bit in byte %d was not found:\n%q", at, whole)
		}
	})
}

// FuzzReader reads any bytes. What it accepts can be written and read again.
func FuzzReader(f *testing.F) {
	var whole bytes.Buffer
	if err := snapshotfile.Write(&whole, header(), sample()); err != nil {
		f.Fatal(err)
	}
	f.Add(whole.Bytes())
	f.Add([]byte(`{"format":"berth-snapshot","version":2}`))
	f.Add([]byte(`{"format":"other"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		records, info, err := snapshotfile.ReadAll(bytes.NewReader(data))
		if err != nil {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("got error %v, want ErrInvalid", err)
			}
			return
		}
		h := snapshotfile.Header{Prefix: info.Prefix, Revision: info.Revision, Time: info.Saved, Build: info.Build}
		var again bytes.Buffer
		if err := snapshotfile.Write(&again, h, records); err != nil {
			t.Fatal(err)
		}
		second, _, err := snapshotfile.ReadAll(&again)
		if diff := cmp.Diff(records, second); err != nil || diff != "" {
			t.Errorf("again: error %v (-want +got):\n%s", err, diff)
		}
	})
}

// TestStreams reads a snapshot while it is written, through a pipe without a buffer.
func TestStreams(t *testing.T) {
	t.Parallel()
	const count = 20_000
	from, to := io.Pipe()
	go func() {
		h := header()
		h.Revision = count
		w, err := snapshotfile.NewWriter(to, h)
		for i := 1; err == nil && i <= count; i++ {
			err = w.Add(record(fmt.Sprintf("berth/%08d", i), "value", uint64(i), uint64(i)))
		}
		if err == nil {
			err = w.Close()
		}
		_ = to.CloseWithError(err) // CloseWithError always returns nil
	}()
	n := 0
	_, err := snapshotfile.Visit(from, func(store.Record) error { n++; return nil })
	if err != nil || n != count {
		t.Errorf("got %d records and error %v, want %d", n, err, count)
	}
}

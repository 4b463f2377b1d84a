package images

import (
	"errors"
	"io"

	"github.com/berthd/berth/internal/transport"
)

// ArchiveReader reads the bytes of an archive out of its frames. An empty frame ends the archive. A stream that ends
// before is an error, so that a partial archive never counts as complete.
type ArchiveReader struct {
	frames *transport.FrameReader
	rest   []byte
	ended  bool
}

// NewArchiveReader returns a reader of the frames of a stream.
func NewArchiveReader(stream *transport.FrameReader) *ArchiveReader {
	return &ArchiveReader{frames: stream}
}

// Read reads on in the archive. A stream that ends before the archive is io.ErrUnexpectedEOF.
func (r *ArchiveReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.ended {
			return 0, io.EOF
		}
		f, err := r.frames.Next()
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		if f.Channel == transport.ChannelStdin {
			r.rest, r.ended = f.Body, len(f.Body) == 0
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

package transport

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
)

// Many agents receive the same addresses. Each service is encoded once, and compressed once if it is long. The answers
// to all agents are composed of these texts.

const (
	// packedEncoding is HTTP's name of the compression, for agents that accept it.
	packedEncoding = "gzip"
	// minPackedBytes is the size in bytes from which on a text is compressed.
	minPackedBytes = 1 << 10
)

// Encoder encodes services for many answers. One goroutine at a time may use it.
type Encoder struct {
	packer *gzip.Writer // created on first use, since it takes much memory
}

// Encode returns t with its text. The result must not be changed any more.
func (e *Encoder) Encode(t ServiceUpdate) (ServiceUpdate, error) {
	type plain ServiceUpdate
	text, err := json.Marshal(plain(t))
	if err != nil {
		return t, fmt.Errorf("encode the addresses of service %s of cluster %s: %w", t.Service, t.Cluster, err)
	}
	if t.text = text; len(text) < minPackedBytes {
		t.packed = storedGzip(text)
		return t, nil
	}
	var packed bytes.Buffer
	if e.packer == nil {
		if e.packer, err = gzip.NewWriterLevel(nil, gzip.BestSpeed); err != nil {
			return t, err
		}
	}
	e.packer.Reset(&packed)
	if _, err = e.packer.Write(text); err == nil {
		err = e.packer.Close()
	}
	t.packed = bytes.Clone(packed.Bytes())
	return t, err
}

// Encoded returns t with its text, as Encoder does.
func (t ServiceUpdate) Encoded() (ServiceUpdate, error) { return new(Encoder).Encode(t) }

// Size returns the size in bytes of the text that Encoded made, packed or not.
func (t *ServiceUpdate) Size(packed bool) int {
	if packed {
		return len(t.packed)
	}
	return len(t.text)
}

// MarshalJSON returns the JSON of the fields.
func (t ServiceUpdate) MarshalJSON() ([]byte, error) {
	if t.text == nil {
		var err error
		if t, err = t.Encoded(); err != nil {
			return nil, err
		}
	}
	return t.text, nil
}

// write writes the answer as json.Marshal would. A packed answer is a sequence of gzip members, which is a valid gzip
// file.
func (r *AddressesReply) write(w http.ResponseWriter, packed bool) error {
	w.Header().Set("Content-Type", "application/json")
	piece := func(text string) []byte { return []byte(text) }
	if packed {
		w.Header().Set("Content-Encoding", packedEncoding)
		piece = func(text string) []byte { return storedGzip([]byte(text)) }
	}
	before, end := `{"services":[`, "]}\n"
	if len(r.Services) == 0 {
		end = "{}\n"
	}
	for i := range r.Services {
		t := &r.Services[i]
		if t.text == nil {
			encoded, err := t.Encoded()
			if err != nil {
				return err
			}
			t = &encoded
		}
		text := t.text
		if packed {
			text = t.packed
		}
		if _, err := w.Write(piece(before)); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
		before = ","
	}
	_, err := w.Write(piece(end))
	return err
}

// storedGzip returns a text as a member of a gzip file (RFC 1952) without compression, which is not worthwhile for a
// short text. The text is at most 65,535 bytes long.
func storedGzip(text []byte) []byte {
	if len(text) > 1<<16-1 {
		return nil
	}
	out := make([]byte, 0, len(text)+23)
	out = append(out, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255)
	out = append(out, 1) // the last block, stored
	out = binary.LittleEndian.AppendUint16(out, uint16(len(text)))
	out = binary.LittleEndian.AppendUint16(out, ^uint16(len(text)))
	out = append(out, text...)
	out = binary.LittleEndian.AppendUint32(out, crc32.ChecksumIEEE(text))
	return binary.LittleEndian.AppendUint32(out, uint32(len(text)))
}

// callPacked is call with an answer that may be packed.
func (c *Client) callPacked(ctx context.Context, l *link, path string, in, out any) error {
	req, err := request(ctx, l, path, in)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", packedEncoding)
	resp, err := c.send(l.http, req) //nolint:bodyclose // by readReply
	if err != nil {
		return err
	}
	if resp.Header.Get("Content-Encoding") == packedEncoding {
		resp.Body = &unpacked{body: resp.Body}
	}
	return readReply(resp, out)
}

// unpacked reads a packed body.
type unpacked struct {
	body io.ReadCloser
	text *gzip.Reader
}

func (u *unpacked) Read(p []byte) (n int, err error) {
	if u.text == nil {
		if u.text, err = gzip.NewReader(u.body); err != nil {
			return 0, err
		}
	}
	return u.text.Read(p)
}

func (u *unpacked) Close() error { return u.body.Close() }

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

// What is told of services is told to many: a text is made once, and packed once where it is long, and the answers to
// all agents are put together from such texts.

const (
	// packing is how answers are packed for agents that can unpack them, as HTTP calls it.
	packing = "gzip"
	// packedFrom is how long a text is at least that is packed, in bytes.
	packedFrom = 1 << 10
)

// Encoder makes texts of what is told to many. One goroutine at a time may use it.
type Encoder struct {
	packer *gzip.Writer // made when it is needed; it has much room of its own
}

// Encode returns what is told with its text: it must not be changed any more.
func (e *Encoder) Encode(t ServiceTold) (ServiceTold, error) {
	type plain ServiceTold
	text, err := json.Marshal(plain(t))
	if err != nil {
		return t, fmt.Errorf("encode the addresses of service %s of cluster %s: %w", t.Service, t.Cluster, err)
	}
	if t.text = text; len(text) < packedFrom {
		t.packed = stored(text)
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

// Encoded returns it with its text, as Encoder does.
func (t ServiceTold) Encoded() (ServiceTold, error) { return new(Encoder).Encode(t) }

// Size returns how long the text is that Encoded made, in bytes, packed or not.
func (t *ServiceTold) Size(packed bool) int {
	if packed {
		return len(t.packed)
	}
	return len(t.text)
}

// MarshalJSON is that of the fields.
func (t ServiceTold) MarshalJSON() ([]byte, error) {
	if t.text == nil {
		var err error
		if t, err = t.Encoded(); err != nil {
			return nil, err
		}
	}
	return t.text, nil
}

// write writes the answer: the text that json.Marshal would make, or packed, in as many pieces one after the other,
// which is one packed text.
func (r *AddressesReply) write(w http.ResponseWriter, packed bool) error {
	w.Header().Set("Content-Type", "application/json")
	piece := func(text string) []byte { return []byte(text) }
	if packed {
		w.Header().Set("Content-Encoding", packing)
		piece = func(text string) []byte { return stored([]byte(text)) }
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

// stored returns a text as a member of a gzip file (RFC 1952) that holds it as it is: what is short is not worth the
// work. It is at most 65,535 bytes long.
func stored(text []byte) []byte {
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
	req.Header.Set("Accept-Encoding", packing)
	resp, err := c.send(l.http, req) //nolint:bodyclose // by take
	if err != nil {
		return err
	}
	if resp.Header.Get("Content-Encoding") == packing {
		resp.Body = &unpacked{body: resp.Body}
	}
	return take(resp, out)
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

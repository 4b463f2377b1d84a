package streams

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/berthd/berth/internal/agent/images"
	"github.com/berthd/berth/internal/agent/inside"
	"github.com/berthd/berth/internal/archive"
	"github.com/berthd/berth/internal/transport"
)

// errNoPath rejects a copy without a path.
var errNoPath = errors.New("no path was given")

// copyOut sends a file or folder as the program sees it. A slow reader holds up only this copy.
func copyOut(p runningProgram, r transport.CopyRequest, out *transport.FrameWriter) error {
	if r.Path == "" {
		return errNoPath
	}
	return inside.Files(p.process, r.Path, func(root *os.Root) error {
		return archive.Pack(out.Channel(transport.ChannelStdout), archive.Packing{
			Root: root, Path: r.Path, Follow: r.Follow,
			LeftOut: func(name, what string) {
				// The following writes detect a broken stream.
				_, _ = fmt.Fprintf(out.Channel(transport.ChannelStderr), "%q is %s\n", name, what)
			},
		})
	})
}

// copyIn writes a file or folder to a path as the program sees it. An incomplete archive is an error; the unpacked part
// stays.
func copyIn(p runningProgram, r transport.CopyRequest, in *transport.FrameReader, out *transport.FrameWriter) error {
	if r.Path == "" {
		return errNoPath
	}
	var end transport.CopyEnd
	err := inside.Files(p.process, r.Path, func(root *os.Root) error {
		from := images.NewArchiveReader(in)
		done, err := archive.Unpack(from, root, r.Path)
		end = transport.CopyEnd(done)
		if err == nil {
			_, err = io.Copy(io.Discard, from)
		}
		return err
	})
	if err != nil {
		return err
	}
	return json.NewEncoder(out.Channel(transport.ChannelStdout)).Encode(end)
}

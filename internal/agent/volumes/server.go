package volumes

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/internal/agent/diskuse"
	"github.com/berthd/berth/internal/agent/node"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/transport"
)

// Server answers the requests of servers about the node's volumes. Its methods may be called concurrently.
type Server struct {
	Node  *node.Node
	Store *Store
	Sizes *Sizes
}

// Serve performs the stream's request on the node's volumes and sends the result.
func (s *Server) Serve(r transport.StreamRequest, stream io.ReadWriter) error {
	frames := transport.NewFrameWriter(stream)
	out, err := s.Answer(r)
	if err != nil {
		return errors.Join(err, frames.End(transport.ExecEnd{Error: err.Error()}))
	}
	if err := json.NewEncoder(frames.Channel(transport.ChannelStdout)).Encode(out); err != nil {
		return err
	}
	return frames.End(transport.ExecEnd{})
}

// Answer performs a request on the node's volumes and returns a list of transport.Volume.
func (s *Server) Answer(r transport.StreamRequest) (any, error) {
	switch {
	case s.Node.Volatile:
		return nil, errors.New("the agent of this node has no volumes")
	case r.Kind == transport.StreamVolumeRemove:
		v, err := s.remove(r.Volume)
		return []transport.Volume{v}, err
	}
	s.Sizes.ask()
	return s.list(), nil
}

// list returns the volumes that the agent keeps, then those that the node declares. Files of declared volumes
// are not counted: such a folder can be anything.
func (s *Server) list() []transport.Volume {
	users := s.Store.users()
	all := []transport.Volume{}
	for _, k := range s.Store.kept() {
		all = append(all, s.describe(&k, users))
	}
	declared := slices.Clone(s.Store.Folders.config.Host)
	slices.SortFunc(declared, func(x, y HostVolume) int { return cmp.Compare(x.Name, y.Name) })
	for _, h := range declared {
		v := transport.Volume{HostVolume: h.Name, Path: h.Path, ReadOnly: h.ReadOnly}
		if direct, err := realDir(h.Path); err == nil {
			v.By = users[direct]
			v.Size, v.Free, _ = diskuse.Room(direct) // it has disappeared
		}
		all = append(all, v)
	}
	return all
}

func (s *Server) describe(k *keptVolume, users map[string][]cluster.TaskID) transport.Volume {
	z, _ := s.Sizes.of(k.dir)
	v := transport.Volume{
		Key: k.key, Path: k.dir, Pin: k.pinned, Sticky: k.note.Sticky, Used: z.used, At: z.at, Size: z.size,
		Free: z.free,
		By:   slices.Concat(users[k.dir], users[filepath.Dir(k.dir)]), Last: k.note.Task, Until: k.note.Used,
	}
	if v.Size == 0 {
		v.Size, v.Free, _ = diskuse.Room(k.dir) // it has disappeared
	}
	if info, err := os.Stat(k.dir); err == nil && v.Until.IsZero() {
		v.Until = info.ModTime()
	}
	return v
}

// remove removes a volume that no task uses.
func (s *Server) remove(key string) (v transport.Volume, err error) {
	err = s.Store.remove(key, func(k *keptVolume, users map[string][]cluster.TaskID) *transport.Volume {
		v = s.describe(k, users)
		return &v
	})
	return v, err
}

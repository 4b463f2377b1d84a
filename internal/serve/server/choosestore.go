package server

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/serve/datadir"
	"github.com/berthd/berth/internal/serve/engines"
)

// readLastStore returns whether the store of the last start ran elsewhere, and its location. The location is nil if it
// is not known.
func (s *Server) readLastStore() (elsewhere bool, at *datadir.ExternalStore, err error) {
	if s.settings != nil {
		return s.settings.External, s.settings.Store, nil
	}
	at, err = datadir.ReadExternalStore(s.Config.DataDir)
	return at != nil, at, err
}

// ChooseStore decides between the server's own store and an external one, by the flags and the record of the last
// start. A server of an external store must never create its own store. With the same authority it would lead a second
// control plane. A server for its own machine only would not know the running tasks.
func (s *Server) ChooseStore() error {
	c := &s.Config.Store
	own := filepath.Join(s.Config.DataDir, datadir.StoreDir)
	hasOwn := engines.Exists(own)
	elsewhere, at, err := s.readLastStore()
	if err != nil {
		return err
	}
	command := cmp.Or(s.Config.Command, "berth server") + datadir.Flag(s.Config.DataDir)
	switch {
	case len(c.Endpoints) > 0 && hasOwn && !elsewhere:
		hint := "Start the server without --store, or rename that folder to move the server to the " +
			"other store."
		if s.settings == nil {
			hint = "Start without --store to continue with the existing store. For the other store, " +
				"name another --data-dir, or rename that folder; Berth then does not know its contents."
		}
		return &hinted.Error{
			Err:  fmt.Errorf("%s is the store of this server, but --store names another one", own),
			Hint: hint,
		}
	case len(c.Endpoints) > 0 && elsewhere && at != nil && at.Prefix != c.Prefix:
		return &hinted.Error{
			Err: fmt.Errorf("the keys of this server's store begin with %q; --store-prefix %q would start a "+
				"new store", at.Prefix, c.Prefix),
			Hint: "Start the server as before:  " + command + at.Flags(),
		}
	case len(c.Endpoints) == 0 && elsewhere && at == nil:
		return &hinted.Error{
			Err: fmt.Errorf("the server in %s uses an external store, but --store is missing; a store of its own "+
				"must not replace it", s.Config.DataDir),
			Hint: "Name the store as on the other servers:  " + command + at.Flags(),
		}
	case len(c.Endpoints) == 0 && elsewhere:
		*c = engines.Recorded(at)
		s.Config.Log.Info("using the external store of the last start", "store", at.URL())
		if s.Config.Notices != nil {
			s.Config.Notices(fmt.Sprintf(
				"the store is %s, as at the last start; for a store of its own name another --data-dir", at.URL()))
		}
	}
	return nil
}

// RememberStore records the location of an external store in the data directory.
func (s *Server) RememberStore() error {
	now, err := s.Config.Store.Record()
	if err != nil || now == nil {
		return err
	}
	elsewhere, had, err := s.readLastStore()
	if err != nil {
		return err
	}
	if elsewhere && had != nil && had.Flags() == now.Flags() && slices.Equal(had.Endpoints, now.Endpoints) {
		return nil
	}
	if s.settings == nil {
		return now.Write(s.Config.DataDir)
	}
	s.settings.External, s.settings.Store = true, now
	return s.settings.Write(s.Config.DataDir)
}

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
func (h *Home) readLastStore() (elsewhere bool, at *datadir.ExternalStore, err error) {
	if h.settings != nil {
		return h.settings.External, h.settings.Store, nil
	}
	at, err = datadir.ReadExternalStore(h.Config.DataDir)
	return at != nil, at, err
}

// ChooseStore decides between the server's own store and an external one, by the flags and the record of the last
// start. A server of an external store must never create its own store. With the same authority it would lead a second
// control plane. A server for its own machine only would not know the running tasks.
func (h *Home) ChooseStore() error {
	c := &h.Config.Store
	own := filepath.Join(h.Config.DataDir, datadir.StoreDir)
	hasOwn := engines.Exists(own)
	elsewhere, at, err := h.readLastStore()
	if err != nil {
		return err
	}
	command := cmp.Or(h.Config.Command, "berth server") + datadir.Flag(h.Config.DataDir)
	switch {
	case len(c.Endpoints) > 0 && hasOwn && !elsewhere:
		hint := "Start the server without --store, or rename that folder to move the server to the " +
			"other store."
		if h.settings == nil {
			hint = "Start without --store to continue with the existing store. For the other store, " +
				"name another --data-dir, or rename that folder; Berth then does not know its contents."
		}
		return &hinted.Error{
			Err:  fmt.Errorf("%s is the store of this server, but --store names another one", own),
			Hint: hint,
		}
	case len(c.Endpoints) > 0 && elsewhere && at != nil && at.Prefix != c.Prefix:
		return &hinted.Error{
			Err: fmt.Errorf("the keys of this server'h store begin with %q; --store-prefix %q would start a "+
				"new store", at.Prefix, c.Prefix),
			Hint: "Start the server as before:  " + command + at.Flags(),
		}
	case len(c.Endpoints) == 0 && elsewhere && at == nil:
		return &hinted.Error{
			Err: fmt.Errorf("the server in %s uses an external store, but --store is missing; a store of its own "+
				"must not replace it", h.Config.DataDir),
			Hint: "Name the store as on the other servers:  " + command + at.Flags(),
		}
	case len(c.Endpoints) == 0 && elsewhere:
		*c = engines.Recorded(at)
		h.Config.Log.Info("using the external store of the last start", "store", at.URL())
		if h.Config.Notices != nil {
			h.Config.Notices(fmt.Sprintf(
				"the store is %s, as at the last start; for a store of its own name another --data-dir", at.URL()))
		}
	}
	return nil
}

// RememberStore records the location of an external store in the data directory.
func (h *Home) RememberStore() error {
	now, err := h.Config.Store.Record()
	if err != nil || now == nil {
		return err
	}
	elsewhere, had, err := h.readLastStore()
	if err != nil {
		return err
	}
	if elsewhere && had != nil && had.Flags() == now.Flags() && slices.Equal(had.Endpoints, now.Endpoints) {
		return nil
	}
	if h.settings == nil {
		return now.Write(h.Config.DataDir)
	}
	h.settings.External, h.settings.Store = true, now
	return h.settings.Write(h.Config.DataDir)
}

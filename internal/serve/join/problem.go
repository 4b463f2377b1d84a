package join

import (
	"errors"
	"net"
	"net/url"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/hinted"
	"github.com/berthd/berth/internal/pki"
)

// AddHint adds what to do about a failed join.
func AddHint(err error, role cluster.Role) error {
	create := "Create a new token on a server: `berth token create --join --role " + string(role) + "`."
	if e, ok := errors.AsType[*refusedError](err); ok {
		if e.status == 401 || e.status == 403 {
			return &hinted.Error{Err: err, Hint: create}
		}
	}
	if isTemporary(err) {
		return &hinted.Error{Err: err, Hint: "Run the same command again: it continues the join."}
	}
	if errors.Is(err, pki.ErrJoinToken) {
		return &hinted.Error{Err: err, Hint: create}
	}
	if hint := hinted.TLS(err); hint != "" {
		return &hinted.Error{Err: err, Hint: hint}
	}
	return err
}

// plainNetError removes the names of network calls from an error.
func plainNetError(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "dial" {
		err = e.Err
	}
	return err
}

package apiserver

import (
	"time"
)

// backend is what most operations read from and write to.
type backend struct {
	reads  *snapshotReader
	writer *writer
	lists  *lists
	domain string
	now    func() time.Time // the wall clock
}

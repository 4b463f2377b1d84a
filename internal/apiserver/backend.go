package apiserver

import (
	"net/http"
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

// serveList answers a list of views, whose fields that change all the time wake nobody.
func serveList[T any](l *lists, w http.ResponseWriter, r *http.Request, src source[T]) error {
	src.Lasting = lasting[T]()
	return serve(l, w, r, src)
}

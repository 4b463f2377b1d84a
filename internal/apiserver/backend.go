package apiserver

import (
	"net/http"
	"time"

	"github.com/berthd/berth/internal/apiserver/draft"
	"github.com/berthd/berth/internal/apiserver/lists"
	"github.com/berthd/berth/internal/apiserver/snapshot"
)

// backend is what most operations read from and write to.
type backend struct {
	reads  *snapshot.Reader
	writer *draft.Writer
	lists  *lists.Lists
	domain string
	now    func() time.Time // the wall clock
}

// serveList answers a list of views, whose fields that change all the time wake nobody.
func serveList[T any](l *lists.Lists, w http.ResponseWriter, r *http.Request, src lists.Source[T]) error {
	src.Lasting = lasting[T]()
	return lists.Serve(l, w, r, src)
}

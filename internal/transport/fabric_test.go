package transport

import (
	"net/http"
	"testing"
	"time"

	"github.com/berthd/berth/internal/transport/transporttest"
)

// fabric is a network in memory.
type fabric struct{ *transporttest.Network }

func newFabric() fabric { return fabric{transporttest.New()} }

// serve starts a server under an address, in place of one that was stopped.
func (f fabric) serve(t *testing.T, address string, d Dispatch) {
	t.Helper()
	f.serveHandler(t, address, Handler(d))
}

func (f fabric) serveHandler(t *testing.T, address string, h http.Handler) {
	t.Helper()
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Handler: h, Protocols: protocols, ReadHeaderTimeout: time.Second}
	ConfigureServer(s)
	f.Serve(t, address, s)
}

// client returns a client that is given the addresses.
func (f fabric) client(t *testing.T, addresses ...string) *Client {
	t.Helper()
	c, err := NewClient(ClientConfig{Addresses: addresses, Dial: f.Dial})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

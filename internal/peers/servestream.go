package peers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"
)

// Handler serves the protocol with other servers, the paths under PathPrefix. Its caller must admit servers only;
// Handler checks that each server acts for itself.
func (p *Peers) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+pathDigest, p.receive)
	mux.HandleFunc("POST "+pathStreams, p.serveStream)
	mux.HandleFunc("GET "+pathReasons, p.serveReasons)
	mux.HandleFunc("GET "+pathDecisionTrace, p.serveDecisionTrace)
	mux.HandleFunc("GET "+pathSecretsKey, p.serveSecretsKey)
	mux.HandleFunc(pathLeader+"/", p.serveLeader)
	return mux
}

// serveStream opens a stream to one of this server's agents for another server. A stream is forwarded at most once.
func (p *Peers) serveStream(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor < 2 {
		refuse(w, http.StatusHTTPVersionNotSupported, "a stream needs HTTP/2")
		return
	}
	in := &frameReader{in: r.Body}
	open, err := in.open()
	if err == nil {
		err = open.check()
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "the stream cannot be opened: "+err.Error())
		return
	}
	if caller := p.config.Caller(r); open.Server != caller {
		refuse(w, http.StatusForbidden,
			fmt.Sprintf("the certificate is that of server %q, which cannot request %q", caller, open.Server))
		return
	}
	if !p.config.Local.Holds(open.Node) {
		refuse(w, http.StatusMisdirectedRequest,
			fmt.Sprintf("server %s does not hold a session of %s", p.config.Server.ID, open.Node))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() { // ends with the request
		select {
		case <-p.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	agent, err := p.config.Local.OpenStream(ctx, open.Node, open.Stream)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	ctl := http.NewResponseController(w)
	w.WriteHeader(http.StatusOK)
	if ctl.Flush() == nil {
		relay(ctx, agent, in, &frameWriter{out: w, flush: ctl.Flush}, ctl)
	}
	_ = agent.Close() // the asker received the end, or is gone
}

// halfCloser is a stream whose sending direction can be closed separately.
type halfCloser interface{ CloseWrite() error }

// deadlines are the deadlines of the asker's connection.
type deadlines interface {
	SetReadDeadline(deadline time.Time) error
	SetWriteDeadline(deadline time.Time) error
}

// relay copies both ways until both directions have ended, one of them broke, or ctx ended. When it returns, nothing
// uses the asker's connection any more.
func relay(ctx context.Context, agent io.ReadWriteCloser, in io.Reader, out *frameWriter, asker deadlines) {
	ctx, cancel := context.WithCancel(ctx)
	released := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(released)
		_ = agent.Close() // ends reads and writes that wait for the agent
		_ = asker.SetReadDeadline(time.Now())
		out.cut(asker)
	})
	defer func() {
		if !stop() {
			<-released
		}
		cancel()
	}()
	var both sync.WaitGroup
	both.Go(func() {
		_, err := io.Copy(agent, in)
		if err != nil && !errors.Is(err, io.ErrClosedPipe) {
			cancel() // the asker went away, or the agent did
			return
		}
		if half, ok := agent.(halfCloser); ok {
			_ = half.CloseWrite()
		}
	})
	both.Go(func() {
		_, err := io.Copy(out, agent)
		if ctx.Err() != nil {
			return // the asker reads that the connection broke
		}
		if out.end(err) != nil || err != nil {
			cancel()
		}
	})
	both.Wait()
}

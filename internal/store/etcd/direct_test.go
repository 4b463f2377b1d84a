package etcd

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	etcderrors "go.etcd.io/etcd/server/v3/etcdserver/errors"
	"go.etcd.io/etcd/server/v3/lease"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

// TestClientError shows the client's errors for those of a server in this process.
func TestClientError(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server error
		want   error
	}{
		{etcderrors.ErrRequestTooLarge, store.ErrTooLarge},
		{etcderrors.ErrNoSpace, store.ErrNoSpace},
		{etcderrors.ErrNoLeader, store.ErrUnavailable},
		{lease.ErrLeaseNotFound, errLeaseExpired},
		{etcderrors.ErrTimeout, store.ErrUnknown},
		{etcderrors.ErrStopped, store.ErrUnknown},
		{etcderrors.ErrCanceled, store.ErrUnknown},
		{errors.New("something new"), store.ErrUnknown},
	} {
		if err := new(calls).writeError(clientError(t.Context(), c.server)); !errors.Is(err, c.want) {
			t.Errorf("%v: got %v, want %v", c.server, err, c.want)
		}
	}
	for _, server := range []error{etcderrors.ErrTooManyRequests, errors.New("raft proposal dropped")} {
		if !isRetryable(clientError(t.Context(), server)) {
			t.Errorf("%v: the write counts as taken", server)
		}
	}
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	for _, server := range []error{
		etcderrors.ErrLeaderChanged, etcderrors.ErrTimeout,
		etcderrors.ErrTimeoutWaitAppliedIndex,
	} {
		err := engine.readError(t.Context(), clientError(t.Context(), server))
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("a read, %v: got %v, want ErrUnavailable", server, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if err := clientError(ended, etcderrors.ErrCanceled); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that went: got %v, want its context's error", err)
	}
}

// bounded commits without a deadline and checks that the call ends all the same, with its result unknown.
func bounded(t *testing.T, engine *Engine) {
	t.Helper()
	watch := testkit.NewStopwatch()
	if err := write(t.Context(), engine, "late"); !errors.Is(err, store.ErrUnknown) {
		t.Errorf("a write that is stuck: got error %v, want ErrUnknown", err)
	}
	if took := watch.Elapsed(); took > writeLimit+5*time.Second {
		t.Errorf("a write that is stuck took %v", took)
	}
}

// TestStuckDatabaseBoundsCommit has the database accept nothing, as on a disk that hangs, while a change of the members
// is written.
func TestStuckDatabaseBoundsCommit(t *testing.T) {
	t.Parallel()
	engine := open(t, Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	server := engine.server.Server
	self, database := *server.Cluster().Member(server.MemberID()), server.Backend().BatchTx()
	database.Lock()
	free := sync.OnceFunc(database.Unlock)
	defer free()
	go func() { _, _ = server.UpdateMember(t.Context(), self) }()
	testkit.Eventually(t, 10*time.Second, func() error {
		answered := make(chan struct{})
		go func() {
			server.Cluster().Members()
			close(answered)
		}()
		select {
		case <-answered:
			return errors.New("etcd still lists the members")
		case <-time.After(200 * time.Millisecond):
			return nil
		}
	})
	bounded(t, engine)
	free()
	testkit.Eventually(t, 10*time.Second, func() error { return write(t.Context(), engine, "after") })
}

// TestStuckEndpointBoundsCommit has an etcd elsewhere fall silent, without an end of its connections.
func TestStuckEndpointBoundsCommit(t *testing.T) {
	t.Parallel()
	s := newElsewhere(t)
	through, stall := stalling(t, strings.TrimPrefix(s.address, "http://"))
	engine := dial(t, "http://"+through)
	if err := write(t.Context(), engine, "before"); err != nil {
		t.Fatal(err)
	}
	stall()
	bounded(t, engine)
}

// stalling returns the address of a proxy before another address, and a function that makes it pass nothing any more.
func stalling(t *testing.T, target string) (address string, stall func()) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	context.AfterFunc(t.Context(), func() { listener.Close() })
	stalled, stop := context.WithCancel(t.Context())
	pass := func(to, from net.Conn) {
		buffer := make([]byte, 64<<10)
		for {
			n, err := from.Read(buffer)
			if stalled.Err() != nil {
				<-t.Context().Done()
			}
			if _, failed := to.Write(buffer[:n]); err != nil || failed != nil {
				to.Close()
				return
			}
		}
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			context.AfterFunc(t.Context(), func() { client.Close(); server.Close() })
			go pass(server, client)
			go pass(client, server)
		}
	}()
	return listener.Addr().String(), stop
}

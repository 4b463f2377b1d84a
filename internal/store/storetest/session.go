package storetest

import (
	"errors"
	"testing"
	"time"

	"github.com/berthd/berth/internal/store"
	"github.com/berthd/berth/internal/testkit"
)

func (c *check) session() store.Session {
	c.Helper()
	session, err := c.Engine.OpenSession(c.Context(), c.suite.TTL)
	if err != nil {
		c.Fatalf("open session: %v", err)
	}
	return session
}

func boundPut(key, value string, session store.Session) store.Op {
	return store.Op{Key: key, Value: []byte(value), Session: session.ID()}
}

// waitAbsent waits until a record is deleted.
func (c *check) waitAbsent(t *testing.T, key string) {
	t.Helper()
	testkit.Eventually(t, 4*c.suite.TTL+deliveryTimeout, func() error {
		_, err := c.Engine.Read(c.Context(), key)
		if errors.Is(err, store.ErrNotFound) {
			return nil
		}
		return errors.Join(errors.New(key+" still exists"), err)
	})
}

// testSessionExpiry lets a session with records expire while a watch follows.
func testSessionExpiry(t *testing.T, c *check) {
	opening := time.Now()
	session := c.session()
	other := c.session()
	if session.ID() == "" || session.ID() == other.ID() {
		t.Fatalf("two sessions have the ids %q and %q", session.ID(), other.ID())
	}
	c.commit(store.Group{Ops: []store.Op{
		boundPut("s/a", "1", session), boundPut("s/b", "1", session),
		put("s/free", "1"),
	}})
	c.wantList("s/", "s/a=1", "s/b=1", "s/free=1")
	m := c.mirrorOf("s/", 0)
	m.next()
	used := time.Now()
	c.waitAbsent(t, "s/a")
	if all := time.Since(opening); all < c.suite.TTL {
		t.Errorf("the session ended %v after it was opened, want %v or more", all, c.suite.TTL)
	}
	// Each change of the store's leader begins the ttl again.
	testkit.Figure(t, "the end of a session after its last use", time.Since(used), 2*c.suite.TTL)
	c.wantList("s/", "s/free=1")
	m.reach(c.list("s/").Revision)

	c.wantError(session.Renew(c.Context()), store.ErrSessionExpired)
	_, err := c.Engine.Commit(c.Context(),
		[]store.Group{{Ops: []store.Op{put("s/beside", "1")}}, {Ops: []store.Op{boundPut("s/a", "2", session)}}})
	c.wantError(err, store.ErrSessionExpired)
	c.wantList("s/", "s/free=1")
	if err := session.End(c.Context()); err != nil {
		t.Errorf("end of an ended session: %v", err)
	}
}

// testSessionRenewal keeps a session alive for three times its ttl.
func testSessionRenewal(t *testing.T, c *check) {
	began := time.Now()
	session := c.sessionWithRecord()
	last := began // the session ends one TTL after this or later
	testkit.Eventually(t, 10*c.suite.TTL, func() error {
		asked := time.Now()
		if asked.Sub(last) < c.suite.TTL/4 {
			return errors.New("not yet")
		}
		err := session.Renew(c.Context())
		switch late := time.Since(last); {
		case err == nil:
			last = asked
		case late < c.suite.TTL:
			t.Fatalf("renew %v after the renewal before: %v", late, err)
		default: // the machine was too slow, which proves nothing about the store
			t.Logf("a renewal %v after the one before: %v; once more", late, err)
			began = time.Now()
			last = began
			session = c.sessionWithRecord()
		}
		if last.Sub(began) < 3*c.suite.TTL {
			return errors.New("not yet")
		}
		return nil
	})
	c.wantList("s/", "s/a=1")
}

// sessionWithRecord opens a session and binds a record to it.
func (c *check) sessionWithRecord() store.Session {
	session := c.session()
	c.commit(store.Group{Ops: []store.Op{boundPut("s/a", "1", session)}})
	return session
}

// testSessionEnd ends a session explicitly.
func testSessionEnd(t *testing.T, c *check) {
	session, other := c.session(), c.session()
	c.commit(store.Group{Ops: []store.Op{
		boundPut("s/a", "1", session), boundPut("s/b", "1", session),
		boundPut("s/c", "1", other),
	}})
	if err := session.End(c.Context()); err != nil {
		t.Fatalf("end: %v", err)
	}
	c.wantList("s/", "s/c=1")
	c.wantError(session.Renew(c.Context()), store.ErrSessionExpired)
	if err := other.Renew(c.Context()); err != nil {
		t.Errorf("renew of another session: %v", err)
	}
	_, err := c.Engine.Commit(c.Context(), []store.Group{{Ops: []store.Op{{Key: "s/d", Session: "no such session"}}}})
	c.wantError(err, store.ErrSessionExpired)
}

// testSessionTies moves records between sessions, into a session and out of one.
func testSessionTies(t *testing.T, c *check) {
	session, other := c.session(), c.session()
	c.commit(store.Group{Ops: []store.Op{
		boundPut("s/freed", "1", session), boundPut("s/moved", "1", session),
		boundPut("s/again", "1", session), put("s/caught", "1"),
	}})
	c.delete("s/again")
	c.put("s/freed", "2", "s/again", "2")
	c.commit(store.Group{Ops: []store.Op{boundPut("s/moved", "2", other), boundPut("s/caught", "2", session)}})
	if err := session.End(c.Context()); err != nil {
		t.Fatalf("end: %v", err)
	}
	c.wantList("s/", "s/again=2", "s/freed=2", "s/moved=2")
}

package memory

// Crash kills the engine: the calls in flight return store.ErrUnknown, and chance decides
// which of them happened, will happen, or never do. What was acknowledged is
// kept. Until Restart, calls and watches wait, as they do for a server that is away.
// It may be called at any time.
func (e *Engine) Crash() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.down = true
	e.d.life++
}

// Restart brings a crashed engine back. The time of every session begins anew.
func (e *Engine) Restart() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.down = false
	for _, l := range e.d.sessions {
		l.arm()
	}
	e.d.announce()
}

// Compact forgets the history of changes: a watch that has not caught up gets a resync.
func (e *Engine) Compact() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.forget(e.d.revision)
}

// Fill makes the disk full, or frees it: writes return store.ErrNoSpace while it is full.
func (e *Engine) Fill(full bool) {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.full, e.d.brim = full, false
}

// Brim has the next write that puts something reach a quota: it is applied, and answered with store.ErrUnknown and
// store.ErrNoSpace, as etcd does; from then on the disk is full, until Fill frees it.
func (e *Engine) Brim() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.brim = true
}

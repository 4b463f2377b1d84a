package memory

// Crash kills the engine. The calls in flight return store.ErrUnknown; chance decides whether each is applied now,
// later or never. Acknowledged writes are kept. Until Restart, calls and watches wait, as they do for a server that is
// down. Crash may be called at any time.
func (e *Engine) Crash() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.down = true
	e.d.crashes++
}

// Restart brings a crashed engine back.
func (e *Engine) Restart() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.down = false
	e.d.wakeWaiters()
}

// Compact drops the history of changes: a watch that has not caught up gets a resync.
func (e *Engine) Compact() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.compact(e.d.revision)
}

// Fill makes the disk full, or frees it. Writes return store.ErrNoSpace while it is full.
func (e *Engine) Fill(full bool) {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.full, e.d.reachesQuotaNext = full, false
}

// ReachQuota has the next write of a value reach the quota. As with etcd, the write is applied and answered with
// store.ErrUnknown and store.ErrNoSpace. The disk is full from then on, until Fill frees it.
func (e *Engine) ReachQuota() {
	e.d.mu.Lock()
	defer e.d.mu.Unlock()
	e.d.reachesQuotaNext = true
}

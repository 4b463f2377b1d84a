package store

// Reconnect lets the log write through another writer, as after a fault of the engine.
func (l *PlanLog) Reconnect(w *Writer) { l.writer = w }

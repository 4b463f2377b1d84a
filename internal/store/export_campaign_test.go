package store

// Impatient switches the doubling of the silence off (P1.3), to show what it is for.
func (c *Candidate) Impatient() { c.impatient = true }

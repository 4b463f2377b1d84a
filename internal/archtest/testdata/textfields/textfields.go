package planted

type View struct {
	// State is "healthy", "rolling-out" or, for a job, "ended".
	State string // want "the comment of View.State lists values"

	Stream string // "stdout" or "stderr" // want "the comment of View.Stream lists values"

	// Mode is "a" or "b".
	Mode Mode

	// Open is "a", "b" or another.
	Open string

	// Name has the default "default"; such as "web@1", "10.0.0.2".
	Name string
}

type Mode string

// Package cluster holds the nouns of Berth as values: what users write (Cluster, TaskDefinition, Service, Job, Host),
// what the control plane writes (Node, PlanRecord, Desired, Outcome), what agents write (NodeStatus, Observed), and the
// words they share (states, reasons, quantities, names).
//
// Each record has one writer, which its comment names. A value that users write goes through
// SetDefaults, which fills in what they left out, and Validate, which tells everything that is wrong with
// it at once; then the API server fills in its Lifespan and stores it. No value here reads a clock or
// changes by itself.
//
// # Templates
//
// A template names services by literal arguments, so what to follow is known without running it. The list of functions
// is checked; Go's `call`, `html`, `js`, `urlquery` and `println` are not on it. A counting call heads each list of
// actions, so loops count even if they are empty; functions count their output, and the text is bounded. No clock is
// needed. archtest therefore lets decisions import text/template and its parser, except what opens files. A definition
// is tried with invented addresses when it is written, by the code that agents run.
package cluster

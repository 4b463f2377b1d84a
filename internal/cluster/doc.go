// Package cluster holds the nouns of Berth as values: what users write (Cluster, Pool, TaskDefinition, Service, Job,
// Host), what the control plane writes (Node, PlanRecord, Desired, Outcome), what agents write (NodeStatus, Observed),
// and the vocabulary they share (states, reasons, quantities, names).
//
// Each record has one writer, which its comment names. A value that users write passes SetDefaults, which fills in
// omitted fields, and Validate, which returns all faults together. Then the API server fills in its Lifespan and stores
// it. No value here reads a clock or changes by itself.
//
// # Templates
//
// A template names services by literal arguments, so the followed services are known without running it. The list of
// functions is checked; Go's `call`, `html`, `js`, `urlquery` and `println` are not on it. Each list of actions begins
// with a counting call, so loops count even if they are empty. Functions count their output, and the text is bounded.
// Templates need no clock. archtest therefore lets decisions import text/template and its parser, except functions that
// open files. When a definition is written, its templates are tried with invented addresses, by the code that agents
// run.
//
// # Size
//
// The package is larger than others. Its types refer to each other in both directions: a service names a definition, a
// volume and a secret, a placement names a node. Validation is a method of each type, so that no caller can store an
// unchecked value. A division would need exported fields between its parts and would give readers two places for one
// noun. Files are named after nouns; each validate_ file holds the rules of one. The type check has a method for each
// form of a value, and TaskDefinition one for each question that several packages ask about what a task runs.
package cluster

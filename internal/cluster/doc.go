// Package cluster holds the nouns of Berth as values: what users write (Cluster, TaskDefinition, Service, Job, Host),
// what the control plane writes (Node, PlanRecord, Desired, Outcome), what agents write (NodeStatus, Observed), and the
// words they share (states, reasons, quantities, names).
//
// Each record has one writer, which its comment names. A value that users write goes through
// SetDefaults, which fills in what they left out, and Validate, which tells everything that is wrong with
// it at once; then the API server fills in its Lifespan and stores it. No value here reads a clock or
// changes by itself.
package cluster

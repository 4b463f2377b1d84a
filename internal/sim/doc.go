// Package sim runs a whole domain in one process, in virtual time, and tries to break it.
//
// A world is one to five servers and a few nodes, or hundreds. Each server is the real tables, control plane and
// dispatcher over its own handle of one store in memory; each node is the real agent over an executor whose programs
// are fake. Between them lies a network that delays, loses and repeats. All of it lives in one testing/synctest bubble,
// so an hour passes in a second.
//
// What goes wrong is a Story: a list of faults with time, target and length that is made upfront from a seed, can be
// read and written as text, and be shortened. What chance decides for a single message is a hash of the seed, the link,
// what the message is and how many of the same there were, so that to leave out one fault does not change all others,
// and it does not matter which of two messages is sent first at one moment. Identities of attempts and events follow
// from the seed too. Only the order in which goroutines of one process run that are woken at one moment is not the
// story's; so a failing story fails most times, not always.
//
// A witness sees every revision of the store and every start and end of a program, and knows what users and agents were
// told. It holds them against the invariants, which are listed in invariants.go. What it finds is shrunk to a short
// story and printed with the command that replays it.
package sim

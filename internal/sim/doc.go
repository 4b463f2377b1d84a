// Package sim runs a whole domain in one process, in virtual time, and tries to break it.
//
// A world has one to five servers, and from a few to hundreds of nodes. Each server is the real tables, control plane
// and dispatcher over its own handle of one store in memory. Each node is the real agent over an executor with fake
// programs. The network between them delays, loses and repeats messages. A world lives in one testing/synctest bubble,
// so an hour passes in a second.
//
// A Story lists the faults of a world, with time, target and length. It is generated upfront from a seed, and can be
// read and written as text, and shortened. Randomness for a single message is a hash of the seed, the link, the message
// and the number of equal messages before it. So the removal of one fault leaves all others as they are, and the order
// of messages of one moment does not matter. Identities of attempts and events also follow from the seed. Only the
// order of goroutines that wake at one moment is not determined. A failing story therefore fails most times, not
// always.
//
// A checker sees every revision of the store and every start and end of a program. It knows what was acknowledged to
// users and agents. It checks all of this against the invariants in invariants.go. A breach is shrunk to a short story
// and printed with the command that replays it.
package sim

// Package sim runs a whole fleet in one process, in virtual time, and tries to break it.
//
// A fleet has one to five servers, and from a few to hundreds of nodes. Each server is the real tables, control plane
// and dispatcher over its own handle of one store in memory. Each node is the real agent over an executor with fake
// programs. A network with faults between them delays, loses and repeats messages. A fleet lives in one
// testing/synctest bubble, so an hour passes in a second.
//
// A Story lists the faults of a fleet, with time, target and length. A seed generates it upfront. A story can be read
// and written as text, and shortened. The randomness for one message is a hash of the seed, the link, the message and
// the number of equal messages before it. The removal of one fault therefore leaves all others unchanged. The order of
// simultaneous messages does not matter. Identities of attempts and events also follow from the seed. Only the order of
// goroutines that wake at the same time is not determined. A failing story therefore fails most times, not always.
//
// A checker sees every revision of the store and every start and end of a program. It records the acknowledgements to
// users and agents. It compares them with the invariants in invariants.go. A breach is shrunk to a short story and
// printed with the command that replays it.
//
// # A day of CI
//
// TestDayOfCI adds the work of a CI system to a story of faults: thousands of jobs that package ci makes up, and users
// who change them. It checks at every moment that each waiting task has a reason, and at the end that each job ended as
// the outcomes of its tasks say. Some nodes have a fair queue whose users always have tasks that wait. In each hour
// each of them must hold the fair share, which package ci computes.
//
// # Size
//
// The parts of a fleet (servers, nodes, network, users, programs) share its clock and its journal, and the checkers
// read all of them. They are files of one package, because only this package's test uses them. The generator of stories
// has a method for each theme of faults.
package sim

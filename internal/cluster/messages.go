package cluster

import "strconv"

// Parts of messages by which views recognise them. Each is shared by the package that writes the message and those that
// look for it.
const (
	// MessageMovesOff begins the message of an attempt that moves off a drained node. The outcome is written before the
	// attempt has left.
	MessageMovesOff = "it moves off node "
	// MessageMoves is part of the message of an attempt that moves for another reason.
	MessageMoves = ": it moves, and runs on until "
	// MessageTriesAgain is part of the message of a preparation that failed and is tried again by the node.
	MessageTriesAgain = "; trying again after "
	// MessagePulling begins the message of a preparation that pulls an image. The name of the image follows, and then
	// ": " and the progress.
	MessagePulling = "pulling "
	// ForgetCommand is the command that releases the tasks of a machine that never comes back.
	ForgetCommand = "berth node forget"
)

// RestartsText counts the restarts in place of an attempt. Agents write it in brackets at the end of the messages of
// attempts that they restarted, and views look for it there.
func RestartsText(n int) string {
	if n == 1 {
		return "1 restart"
	}
	return strconv.Itoa(n) + " restarts"
}

package output

import (
	"strings"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/taskview"
)

// Escape sequences of terminal colours.
const (
	Red    = "31"
	Green  = "32"
	Yellow = "33"
	Grey   = "90"
)

// colorWords colours the words that name a state.
func colorWords(text string) string {
	word, _, _ := strings.Cut(text, " ")
	color := ""
	switch word { // words that several kinds of states share are listed once
	case string(cluster.HealthHealthy), string(cluster.NodeReady), string(cluster.StateSucceeded),
		string(api.ActionCreate), string(cluster.RolloutComplete):
		color = Green
	case string(cluster.HealthFailing), string(cluster.StateFailed), string(cluster.StateLost),
		string(cluster.StateRejected), string(cluster.ServiceDegraded), string(cluster.ServiceCrashLooping),
		string(cluster.NodeDown), string(cluster.RolloutRolledBack), api.TroubleRolloutFailed,
		api.TroubleLostDevice, api.TroubleGivenUp, api.TroubleDiskFull:
		color = Red
	case string(cluster.HealthWarning), string(cluster.StatePending), string(cluster.StateAssigned),
		string(cluster.StatePreparing), string(cluster.StateStarting), string(cluster.StateStopping),
		taskview.StateBackingOff,
		string(cluster.ServiceRollingOut), string(cluster.ServiceDeleting), string(cluster.NodeSuspect),
		string(cluster.NodeDraining), string(cluster.NodeJoining), string(cluster.RolloutRolling),
		string(api.ActionUpdate), api.TroubleCanary, api.TroublePaused, api.TroublePressure, api.TroubleDrainHeld,
		api.TroubleMissed, api.TroubleNoMoments, api.TroubleHungry, api.TroubleMisplaced:
		color = Yellow
	case string(cluster.ServiceStopped), string(cluster.StateCancelled), string(cluster.NodeDrained),
		string(api.CronSuspended), string(cluster.RolloutSuperseded):
		color = Grey
	}
	return Colored(text, color)
}

// Colored returns a text in a terminal colour. It returns the text itself if the text or the colour is empty.
func Colored(text, color string) string {
	if color == "" || text == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

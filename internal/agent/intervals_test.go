package agent

import "time"

// Times and limits of the agent's parts, as the stories know them.
const (
	measureEvery           = 2 * time.Second
	victimEvery            = 30 * time.Second
	probeEvery             = time.Minute
	imagesReportEvery      = 5 * time.Minute
	diskCheckEvery         = 5 * time.Second
	cleanupRetryEvery      = 5 * time.Minute
	countEvery             = 30 * time.Second
	firstAnswerWithin      = 2 * time.Second
	nameFollowedFor        = 5 * time.Minute
	unknownNameFollowedFor = 30 * time.Second
	newNameEvery           = 100 * time.Millisecond
	maxNewNames            = 100
	maxFollowedNames       = 1024
	maxPullText            = 2 << 10
	addressFile            = "addresses.json"
)

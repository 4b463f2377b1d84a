package planted

import rule "github.com/berthd/berth/internal/clause"

type config struct{ without rule.Set }

func (c config) fenced() bool { return !c.without.Off(rule.Fence) }

func quick() config {
	return config{without: rule.Fence} // want "only tests and the simulator may use rule.Fence"
}

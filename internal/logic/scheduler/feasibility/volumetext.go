package feasibility

import (
	"fmt"
	"strings"

	"github.com/berthd/berth/internal/cluster"
	"github.com/berthd/berth/internal/logic/scheduler/fleet"
)

// constraintCode returns the reason code for a constraint that is not met.
func constraintCode(c *cluster.Constraint) cluster.ReasonCode {
	switch c.Attribute {
	case fleet.AttributeVolume, cluster.AttributeHostVolume, cluster.AttributeHostPath:
		return cluster.ReasonVolume
	}
	return cluster.ReasonConstraint
}

// maxNamedHolders is how many nodes with a volume volumeText names.
const maxNamedHolders = 3

// volumeText returns which nodes have a volume, as text.
func volumeText(c cluster.Constraint) string {
	_, name, _ := strings.Cut(c.Value, "/")
	nodes, more := c.Values, ""
	if len(nodes) > maxNamedHolders {
		more = fmt.Sprintf(" and %d more", len(nodes)-maxNamedHolders)
		nodes = nodes[:maxNamedHolders]
	}
	return fmt.Sprintf("the data of its volume %s is on %s%s", name, strings.Join(nodes, ", "), more)
}

// folderText returns what a node lacks that does not meet a constraint on folders; ok is false for other constraints.
func folderText(c cluster.Constraint) (text string, ok bool) {
	switch c.Attribute {
	case cluster.AttributeHostPath, cluster.AttributeHostVolume:
		return cluster.LacksFolder(c, &cluster.FolderFacts{})
	}
	return "", false
}

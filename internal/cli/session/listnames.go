package session

import (
	"cmp"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api"
	"github.com/berthd/berth/internal/wording"
)

// listAnnotation marks the commands that list objects, see MarkList.
const listAnnotation = "berth-list"

// MarkList marks a command that lists objects. Such a command takes -o name.
func MarkList(cmd *cobra.Command) {
	if cmd.Annotations == nil {
		cmd.Annotations = map[string]string{}
	}
	cmd.Annotations[listAnnotation] = "true"
}

// PrintNames prints the names of objects, one a line, as other commands take them. A name that occurs again, such as
// that of a task with several attempts, is printed once.
func PrintNames[T any](s *Session, all []T) error {
	printed := map[string]bool{}
	for _, v := range all {
		name := s.Shorten(objectName(v))
		if printed[name] {
			continue
		}
		printed[name] = true
		if _, err := io.WriteString(s.Stdout, name+"\n"); err != nil {
			return err
		}
	}
	return nil
}

// objectName returns the argument that names an element of a list.
func objectName(v any) string {
	switch v := v.(type) {
	case interface{ ObjectName() string }: // not an object of the API
		return v.ObjectName()
	case api.TaskView:
		return wording.KindTask + "/" + string(v.ID)
	case api.JobView:
		return Name{wording.KindJob, v.Cluster, v.Name}.String()
	case api.QueueEntry:
		return OwnerName(v.Owner).String()
	case api.CronView:
		return CronName(v).String()
	case api.EndpointView:
		return EndpointName(v).String()
	case api.NodeView:
		return wording.KindNode + "/" + v.Name
	case api.PoolView:
		return wording.KindPool + "/" + v.Name
	case api.ProfileView:
		return wording.KindProfile + "/" + v.Ref().String()
	case api.DomainView:
		return wording.KindDomain + "/" + v.Name
	case api.DefinitionView:
		return wording.KindDefinition + "/" + v.Ref().String()
	case api.ServerView:
		return cmp.Or(v.Name, v.ID)
	case api.TokenView:
		return v.ID
	case api.SecretView:
		return v.Name
	case api.ReservationView:
		return v.Name
	case api.RebalancingBrief:
		return strconv.FormatUint(v.ID, 10)
	case api.ImageView:
		return v.Name
	case api.VolumeView:
		return cmp.Or(v.Name, v.HostVolume)
	}
	panic(fmt.Sprintf("a list of %T has no names", v))
}

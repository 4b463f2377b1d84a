package serving

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/agent/artifact"
	"github.com/berthd/berth/internal/cli/session"
)

// objectFlags name the object store that has images and artifacts of tasks.
type objectFlags struct{ artifact.ObjectStore }

func (f *objectFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.Endpoint, "object-store", "",
		"`URL` of the server with the protocol of Amazon S3 that has the sources s3://BUCKET/KEY of tasks")
	cmd.Flags().StringVar(&f.Region, "object-store-region", "",
		"`REGION` of the object store (default "+artifact.DefaultRegion+")")
	cmd.Flags().StringVar(&f.Credentials, "object-store-key-file", "",
		"`FILE` with the key for the object store, as the file credentials of AWS has it, mode 0600; without one, "+
			"requests are not signed")
}

// check adds the faults of the flags to list.
func (f *objectFlags) check(list *session.Faults) {
	if err := f.Validate(); err != nil {
		list.Add("--object-store: %v", err)
	}
}

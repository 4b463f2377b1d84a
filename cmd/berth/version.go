package main

import (
	"github.com/spf13/cobra"

	"github.com/berthd/berth/internal/version"
)

func (a *app) newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell which build of Berth this is",
		Args:  arguments(0, 0, ""),
		RunE: func(*cobra.Command, []string) error {
			if a.data() {
				return a.printData(version.Current())
			}
			a.say("%s", version.Current())
			return nil
		},
	}
}

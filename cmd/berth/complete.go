package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/api/client"
)

// completeTimeout bounds how long a shell waits for names.
const completeTimeout = time.Second

// completeNames completes the first argument with names of the kinds, KIND/NAME for all but
// tasks and nodes, which go by their own.
func (a *app) completeNames(kinds ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, text string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTimeout)
		defer cancel()
		c, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, kind := range kinds {
			names = append(names, namesOf(ctx, c, kind)...)
		}
		names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, text) })
		slices.Sort(names)
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

// namesOf returns the names that a server knows of a kind; a shell is not told of errors.
func namesOf(ctx context.Context, c *client.Client, kind string) []string {
	var names []string
	switch kind {
	case wordService:
		page, _ := c.Services(ctx, "", client.ListOptions{})
		for _, v := range page.Items {
			names = append(names, name{kind, v.Cluster, v.Name}.String())
		}
	case wordJob:
		page, _ := c.Jobs(ctx, "", client.ListOptions{})
		for _, v := range page.Items {
			names = append(names, name{kind, v.Cluster, v.Name}.String())
		}
	case wordCron:
		page, _ := c.Crons(ctx, "", client.ListOptions{})
		for _, v := range page.Items {
			names = append(names, name{kind, v.Cluster, v.Name}.String())
		}
	case wordNode:
		page, _ := c.Nodes(ctx, client.ListOptions{})
		for _, v := range page.Items {
			names = append(names, v.Name)
		}
	case wordTask:
		page, _ := c.Tasks(ctx, client.TaskFilter{}, client.ListOptions{})
		for _, v := range page.Items {
			names = append(names, shortTask(v.ID))
		}
	}
	return names
}

// completeManifests completes files.
func completeManifests(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"yaml", "yml", "json"}, cobra.ShellCompDirectiveFilterFileExt
}

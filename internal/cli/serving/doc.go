// Package serving has the commands that start servers and agents: dev, server and agent, with their flags.
package serving

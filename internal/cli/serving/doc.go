// Package serving implements the commands that run servers and agents: dev, server and agent.
package serving

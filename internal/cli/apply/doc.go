// Package apply implements the commands that read manifests: run, plan, validate and diff.
package apply

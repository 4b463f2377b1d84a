// Package resource has the commands of definitions, images, reservations, secrets and volumes.
package resource

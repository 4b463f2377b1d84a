// Package resource implements the commands about definitions, images, reservations, secrets and volumes.
package resource

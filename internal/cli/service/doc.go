// Package service has the commands that change services and crons.
package service

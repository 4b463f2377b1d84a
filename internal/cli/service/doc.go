// Package service implements the commands that change services, jobs and crons, and those that show their rollouts and
// scaling.
package service

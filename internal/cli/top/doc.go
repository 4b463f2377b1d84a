// Package top has the commands that follow what nodes and tasks use.
package top

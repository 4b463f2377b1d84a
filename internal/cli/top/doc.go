// Package top implements berth top and berth node top, which show resource use.
package top

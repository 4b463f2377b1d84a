// Package trouble finds what is not as it should be, its cause and the next step.
package trouble

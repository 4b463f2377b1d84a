package planted

import (
	"bytes"
	"fmt"
	"strings"
)

type sink struct{ bytes.Buffer }

func printing(s *sink) error {
	fmt.Println("x")      // want "fmt.Println is not among the pure functions"
	fmt.Printf("x")       // want "fmt.Printf is not among the pure functions"
	_, _ = fmt.Sscan("1") // want "fmt.Sscan is not among the pure functions"
	fmt.Fprintf(s, "x")   // want "fmt.Fprintf to other than a strings.Builder"
	println("x")          // want "println: a decision prints nothing"
	var b strings.Builder
	fmt.Fprintf(&b, "fine")
	fmt.Fprintln(&s.Buffer, "fine")
	_ = fmt.Sprint("fine")
	return fmt.Errorf("fine: %s", b.String())
}

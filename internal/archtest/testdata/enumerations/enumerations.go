package planted

type Whole string

const (
	WholeA Whole = "a"
	WholeB Whole = "b"
)

func (Whole) Values() []Whole { return []Whole{WholeA, WholeB} }

type Short string // want "Short has the constants ShortA, ShortB, but Values lists ShortA"

const (
	ShortA Short = "a"
	ShortB Short = "b"
)

func (Short) Values() []Short { return []Short{ShortA} }

type None string // want "None has the constants NoneA, but Values lists "

const NoneA None = "a"

type Open string

const OpenA Open = "a"

type Free string

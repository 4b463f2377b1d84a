package forecast

// end is the end of a task.
type end struct {
	at   int64
	task int32
}

// endHeap is a heap of ends: the next one is first.
type endHeap []end

func (h endHeap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
}

func (h *endHeap) push(e end) {
	*h = append(*h, e)
	for i := len(*h) - 1; i > 0; {
		up := (i - 1) / 2
		if !(*h)[i].before((*h)[up]) {
			break
		}
		(*h)[i], (*h)[up] = (*h)[up], (*h)[i]
		i = up
	}
}

func (h *endHeap) pop() end {
	old := *h
	first := old[0]
	old[0] = old[len(old)-1]
	*h = old[:len(old)-1]
	h.sink(0)
	return first
}

func (h endHeap) sink(i int) {
	for {
		first := 2*i + 1
		if first >= len(h) {
			return
		}
		if other := first + 1; other < len(h) && h[other].before(h[first]) {
			first = other
		}
		if !h[first].before(h[i]) {
			return
		}
		h[i], h[first] = h[first], h[i]
		i = first
	}
}

func (e end) before(o end) bool { return e.at < o.at || e.at == o.at && e.task < o.task }

// random is the generator SplitMix64 (Steele, Lea and Flood, 2014).
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// float returns a number in [0, 1).
func (r *random) float() float64 { return float64(r.next()>>11) / (1 << 53) }

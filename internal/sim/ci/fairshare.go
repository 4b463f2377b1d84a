package ci

// Resources is the number of resources that shares are computed of: CPU, memory and devices.
const Resources = 3

// Amounts is an amount of each resource.
type Amounts [Resources]float64

// Contender is a cluster with users whose tasks always wait.
type Contender struct {
	Weight float64
	// Held is what the cluster holds whatever the others do.
	Held Amounts
	// Users are the demands of one task of each user.
	Users []Amounts
}

// fairStep is the part of a resource that a user gets at a time.
const fairStep = 1e-4

// FairTasks returns how many tasks each user of each contender holds by weighted dominant resource fairness, if tasks
// could be divided. The contenders share the room, in which Held is contained. Shares are of the total.
//
// It fills the room in small steps. Each goes to the cluster with the least dominant share for its weight, and there to
// the user with the least dominant share. A user for whose tasks a resource is used up gets no more.
func FairTasks(total, room Amounts, contenders []Contender) [][]float64 {
	tasks := make([][]float64, len(contenders))
	held := make([]Amounts, len(contenders))
	isFull := make([][]bool, len(contenders))
	for i, c := range contenders {
		tasks[i], isFull[i] = make([]float64, len(c.Users)), make([]bool, len(c.Users))
		held[i] = c.Held
		room = room.Plus(c.Held, -1)
	}
	for {
		in, at := -1, 0
		least := 0.0
		for i, c := range contenders {
			user, found := leastUser(total, c.Users, tasks[i], isFull[i])
			if share := held[i].dominant(total) / c.Weight; found && (in < 0 || share < least) {
				in, at, least = i, user, share
			}
		}
		if in < 0 {
			return tasks
		}
		demand := contenders[in].Users[at]
		part := fairStep / demand.dominant(total)
		if left := room.Plus(demand, -part); left.isNegative(demand) {
			isFull[in][at] = true
		} else {
			room, held[in] = left, held[in].Plus(demand, part)
			tasks[in][at] += part
		}
	}
}

// leastUser returns the user with the least dominant share of those who are not full.
func leastUser(total Amounts, users []Amounts, tasks []float64, isFull []bool) (user int, found bool) {
	least := 0.0
	for k, demand := range users {
		if share := tasks[k] * demand.dominant(total); !isFull[k] && (!found || share < least) {
			user, found, least = k, true, share
		}
	}
	return user, found
}

// Plus returns the sum with so many times another amount.
func (a Amounts) Plus(b Amounts, times float64) Amounts {
	for i := range a {
		a[i] += b[i] * times
	}
	return a
}

// isNegative reports whether an amount of one of the requested resources is below 0.
func (a Amounts) isNegative(requested Amounts) bool {
	for i := range a {
		if requested[i] > 0 && a[i] < 0 {
			return true
		}
	}
	return false
}

// dominant returns the largest part of a resource.
func (a Amounts) dominant(total Amounts) (share float64) {
	for i := range a {
		if total[i] > 0 {
			share = max(share, a[i]/total[i])
		}
	}
	return share
}

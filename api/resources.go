package api

import (
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// MaxAmount bounds one quantity as it enters, in the resource's own unit: 2^60 bytes is 1 Ei. Sums are checked apart.
const MaxAmount = int64(1) << 60

// Bounds of what one object may name: a pod in its requests, a Queue in a list of limits.
const (
	MaxResources    = 64  // names in one vector
	MaxResourceName = 317 // bytes of a name: a DNS subdomain of 253, a slash, and a name of 63
)

// ResourceGangs counts gangs: a gang that is charged anything is charged one of it, and no node and no pod has any.
// What a pod requests of it is ignored.
const ResourceGangs = "scheduling.basalt.dev/gangs"

// IsCount reports whether a resource is counted, whatever pods request, and nothing that a container could use.
func IsCount(name string) bool { return name == string(v1.ResourcePods) || name == ResourceGangs }

// CheckResourceName returns an error if a resource name is longer than MaxResourceName.
func CheckResourceName(name string) error {
	if len(name) > MaxResourceName {
		return fmt.Errorf("resource name %.40q... has %d bytes, the limit is %d", name, len(name), MaxResourceName)
	}
	return nil
}

// maxExponent bounds the power of ten of a quantity before it is compared: 10^30 is above every limit.
const maxExponent = 30

// Amount is so much of one resource: milli-units for cpu, bytes for memory and storage, whole units for the rest.
type Amount struct {
	Resource string
	Value    int64
}

// Resources is a vector of amounts, sorted by resource name, each name once. A missing name is zero where demand and use
// are meant, and "not limited" where a limit is meant. A Resources is never changed in place once it has been shared.
type Resources []Amount

// scanned is the longest vector in which Get scans: below it a scan beats a binary search.
const scanned = 8

// Get returns the amount of a resource and whether it is named.
func (r Resources) Get(name string) (int64, bool) {
	if len(r) > scanned {
		i, found := slices.BinarySearchFunc(r, name, func(a Amount, name string) int { return strings.Compare(a.Resource, name) })
		if !found {
			return 0, false
		}
		return r[i].Value, true
	}
	for i := range r {
		if r[i].Resource == name {
			return r[i].Value, true
		}
	}
	return 0, false
}

// Value returns the amount of a resource, zero when it is not named.
func (r Resources) Value(name string) int64 {
	v, _ := r.Get(name)
	return v
}

// IsZero reports whether no amount differs from zero.
func (r Resources) IsZero() bool {
	for i := range r {
		if r[i].Value != 0 {
			return false
		}
	}
	return true
}

// Equal reports whether every amount is the same, a missing one being zero.
func (r Resources) Equal(o Resources) bool {
	equal := true
	merge(r, o, func(_ string, a, b int64) { equal = equal && a == b })
	return equal
}

// Clone returns a copy.
func (r Resources) Clone() Resources { return slices.Clone(r) }

// Add returns r + o, saturating at the bounds of int64.
func (r Resources) Add(o Resources) Resources {
	return combine(r, o, AddSat)
}

// Sub returns r - o, which may be negative: that is data, not an error.
func (r Resources) Sub(o Resources) Resources {
	return combine(r, o, func(a, b int64) int64 {
		if b == math.MinInt64 {
			return AddSat(AddSat(a, math.MaxInt64), 1)
		}
		return AddSat(a, -b)
	})
}

// Max returns the larger amount of each resource.
func (r Resources) Max(o Resources) Resources {
	return combine(r, o, func(a, b int64) int64 { return max(a, b) })
}

// Min returns the smaller amount of each resource.
func (r Resources) Min(o Resources) Resources {
	return combine(r, o, func(a, b int64) int64 { return min(a, b) })
}

// Positive returns the amounts above zero.
func (r Resources) Positive() Resources {
	out := make(Resources, 0, len(r))
	for _, a := range r {
		if a.Value > 0 {
			out = append(out, a)
		}
	}
	return out
}

// Exceeds returns the first resource (in name order) of which r holds more than o, and by how much; a resource that o
// does not name counts as zero there.
func (r Resources) Exceeds(o Resources) (name string, by int64, exceeds bool) {
	for _, a := range r {
		if have := o.Value(a.Resource); a.Value > have {
			return a.Resource, AddSat(a.Value, -max(have, math.MinInt64+1)), true
		}
	}
	return "", 0, false
}

// Fits reports whether r <= o in every resource, one that o does not name counting as zero.
func (r Resources) Fits(o Resources) bool {
	_, _, exceeds := r.Exceeds(o)
	return !exceeds
}

// Often returns how many times r fits into o.
func (r Resources) Often(o Resources) int64 {
	n := int64(math.MaxInt64)
	for _, a := range r {
		if a.Value > 0 {
			n = min(n, max(0, o.Value(a.Resource))/a.Value)
		}
	}
	return n
}

// String prints the vector as people write it: "cpu=1500m memory=4Gi".
func (r Resources) String() string {
	var b strings.Builder
	for i, a := range r {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s=%s", a.Resource, FormatAmount(a.Resource, a.Value))
	}
	return b.String()
}

// AddSat adds, saturating at the bounds of int64.
func AddSat(a, b int64) int64 {
	s := a + b
	if (s > a) == (b > 0) {
		return s
	}
	if b > 0 {
		return math.MaxInt64
	}
	if b < 0 {
		return math.MinInt64
	}
	return s
}

// MulSat multiplies two amounts of which n is not negative, saturating.
func MulSat(a, n int64) int64 {
	neg := a < 0
	u := uint64(a)
	if neg {
		u = -u
	}
	hi, lo := bits.Mul64(u, uint64(n))
	if hi != 0 || lo > math.MaxInt64 {
		if neg {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	if neg {
		return -int64(lo)
	}
	return int64(lo)
}

func combine(r, o Resources, f func(a, b int64) int64) Resources {
	out := make(Resources, 0, max(len(r), len(o)))
	merge(r, o, func(name string, a, b int64) { out = append(out, Amount{name, f(a, b)}) })
	return out
}

func merge(r, o Resources, f func(name string, a, b int64)) {
	i, j := 0, 0
	for i < len(r) || j < len(o) {
		switch {
		case j == len(o) || i < len(r) && r[i].Resource < o[j].Resource:
			f(r[i].Resource, r[i].Value, 0)
			i++
		case i == len(r) || o[j].Resource < r[i].Resource:
			f(o[j].Resource, 0, o[j].Value)
			j++
		default:
			f(r[i].Resource, r[i].Value, o[j].Value)
			i, j = i+1, j+1
		}
	}
}

// FromMap builds a vector; it is for tests and tables.
func FromMap(m map[string]int64) Resources {
	out := make(Resources, 0, len(m))
	for k, v := range m {
		out = append(out, Amount{k, v})
	}
	slices.SortFunc(out, func(a, b Amount) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// FromQuantity reads one quantity in the unit of its resource. It refuses negative amounts, amounts above MaxAmount, and
// fractions finer than the unit; roundUp accepts fractions and rounds them up, for requests, where Kubernetes allows them
// ("memory: 100m").
func FromQuantity(name string, q resource.Quantity, roundUp bool) (int64, error) {
	// 1e300000000 is a quantity to Kubernetes, and to compare it with anything takes minutes: its exponent tells first.
	if q.Format == resource.DecimalExponent {
		if q.Sign() == 0 {
			return 0, nil
		}
		c := q.DeepCopy()
		if scale := c.AsDec().Scale(); scale < -maxExponent {
			return 0, fmt.Errorf("%s: about 1e%d is too large", name, -scale)
		}
	}
	if q.Sign() < 0 {
		return 0, fmt.Errorf("%s: %s is negative", name, short(q))
	}
	limit := *resource.NewQuantity(MaxAmount, resource.DecimalSI)
	scale := resource.Scale(0)
	if name == string(v1.ResourceCPU) {
		limit = *resource.NewMilliQuantity(MaxAmount, resource.DecimalSI)
		scale = resource.Milli
	}
	if q.Cmp(limit) > 0 {
		return 0, fmt.Errorf("%s: %s is above the limit of %s", name, short(q), limit.String())
	}
	v := q.ScaledValue(scale) // rounds up
	if !roundUp && q.Cmp(*resource.NewScaledQuantity(v, scale)) != 0 {
		return 0, fmt.Errorf("%s: %s is finer than the unit of this resource", name, short(q))
	}
	return v, nil
}

// short prints a quantity for a message: one of a million digits is a quantity, too.
func short(q resource.Quantity) string {
	s := q.String()
	if len(s) > 40 {
		s = s[:40] + "..."
	}
	return s
}

// FromResourceList reads a list as FromQuantity does, leaving out zeros. It names the first bad resource in name order.
func FromResourceList(l v1.ResourceList, roundUp bool) (Resources, error) {
	out := make(Resources, 0, len(l))
	for name, q := range l {
		out = append(out, Amount{Resource: string(name)})
		_ = q
	}
	slices.SortFunc(out, func(a, b Amount) int { return strings.Compare(a.Resource, b.Resource) })
	kept := out[:0]
	for _, a := range out {
		v, err := FromQuantity(a.Resource, l[v1.ResourceName(a.Resource)], roundUp)
		if err != nil {
			return nil, err
		}
		if v != 0 {
			kept = append(kept, Amount{a.Resource, v})
		}
	}
	return kept, nil
}

// FloorOf returns what spec.minResources of a PodGroup says that its gang is charged at least, and with it as many pods
// as it needs to start. Resources that are ignored are no part of it.
func FloorOf(minResources v1.ResourceList, minCount int32, ignored map[string]bool) (Resources, error) {
	counted := make(v1.ResourceList, len(minResources))
	for name, q := range minResources {
		if !ignored[string(name)] && name != ResourceGangs {
			counted[name] = q
		}
	}
	if len(counted) > MaxResources {
		return nil, fmt.Errorf("spec.minResources names more than %d resources", MaxResources)
	}
	out, err := FromResourceList(counted, true)
	if err != nil {
		return nil, fmt.Errorf("spec.minResources: %w", err)
	}
	if len(out) > 0 {
		out = out.Max(Resources{{string(v1.ResourcePods), int64(max(1, minCount))}})
	}
	return out, nil
}

// Quantity is the reverse of FromQuantity.
func Quantity(name string, v int64) resource.Quantity {
	switch {
	case name == string(v1.ResourceCPU):
		return *resource.NewMilliQuantity(v, resource.DecimalSI)
	case name == string(v1.ResourceMemory), name == string(v1.ResourceEphemeralStorage), strings.HasPrefix(name, v1.ResourceHugePagesPrefix):
		return *resource.NewQuantity(v, resource.BinarySI)
	}
	return *resource.NewQuantity(v, resource.DecimalSI)
}

// ToResourceList is the reverse of FromResourceList.
func (r Resources) ToResourceList() v1.ResourceList {
	out := make(v1.ResourceList, len(r))
	for _, a := range r {
		out[v1.ResourceName(a.Resource)] = Quantity(a.Resource, a.Value)
	}
	return out
}

// FormatAmount prints an amount as a quantity. It writes 1000 cores as people do, and not as 1k.
func FormatAmount(name string, v int64) string {
	q := Quantity(name, v)
	switch {
	case q.Format != resource.DecimalSI:
	case name != string(v1.ResourceCPU):
		return strconv.FormatInt(v, 10)
	case v%1000 == 0:
		return strconv.FormatInt(v/1000, 10)
	}
	return q.String()
}

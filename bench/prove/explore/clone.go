package explore

import (
	"encoding/binary"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
)

// shared reports whether clones share what a pointer points to: what is immutable by the house's rules, messages, records, API objects, tables, and time zones.
func shared(t reflect.Type) bool {
	pkg := t.PkgPath()
	return strings.HasPrefix(pkg, "k8s.io/") || strings.HasPrefix(pkg, "google.golang.org/") ||
		pkg == "basalt.dev/basalt/api/expression" || pkg == "basalt.dev/basalt/api" ||
		pkg == "basalt.dev/basalt/api/wire" || pkg == "basalt.dev/basalt/api/v1beta1" ||
		pkg == "time" || pkg == "reflect"
}

var (
	flatTypes = map[reflect.Type]bool{}
	timeType  = reflect.TypeFor[time.Time]()
)

// flat types hold nothing that a clone would have to copy on its own.
func flat(t reflect.Type) bool {
	if known, is := flatTypes[t]; is {
		return known
	}
	is := false
	switch t.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr, reflect.Float64, reflect.Float32, reflect.String, reflect.Func:
		is = true
	case reflect.Array:
		is = flat(t.Elem())
	case reflect.Pointer:
		is = shared(t.Elem())
	case reflect.Struct:
		is = t == timeType
		if !is {
			is = true
			for i := range t.NumField() {
				is = is && flat(t.Field(i).Type)
			}
		}
	}
	flatTypes[t] = is
	return is
}

// writable lifts the ban on unexported fields.
func writable(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// cloner copies everything that can change, and each thing once. A pointer into a struct, or into a slice of structs, points into the copy
// of that.
type cloner struct {
	pointers map[place]reflect.Value
	maps     map[unsafe.Pointer]reflect.Value
	blocks   []block
	inner    *inner
	late     []reflect.Value // pointers to structs into which something pointed that was copied before them, and so by itself
}

// place is where something of a type lies: the first field of a struct lies where the struct does.
type place struct {
	at unsafe.Pointer
	of reflect.Type
}

// block is a struct, or a slice of structs: others may point into it.
type block struct {
	of       reflect.Type
	old, end uintptr
	fresh    unsafe.Pointer
}

// copyOf copies what is pointed to. Structs into which something points have to have their place before that is copied, so it is tried
// again when one comes too late.
func copyOf(value any) any {
	root := reflect.ValueOf(value)
	var first []reflect.Value
	for range 100 {
		c := cloner{pointers: map[place]reflect.Value{}, maps: map[unsafe.Pointer]reflect.Value{}, inner: innerOf(root.Type())}
		for _, p := range first {
			c.place(p)
		}
		for _, p := range first {
			c.into(c.pointers[placeOf(p)].Elem(), p.Elem())
		}
		if n := c.pointer(root); len(c.late) == 0 {
			return n.Interface()
		}
		first = append(first, c.late...)
	}
	panic("explore: cannot copy " + root.Type().String())
}

func placeOf(p reflect.Value) place { return place{p.UnsafePointer(), p.Type().Elem()} }

func (c *cloner) pointer(p reflect.Value) reflect.Value {
	if p.IsNil() || shared(p.Type().Elem()) {
		return p
	}
	if done, is := c.pointers[placeOf(p)]; is && done.Type() == p.Type() {
		return done
	}
	if in := c.inside(p); in.IsValid() {
		return in
	}
	n := c.place(p)
	c.into(n.Elem(), p.Elem())
	return n
}

// place makes room for the copy of what is pointed to.
func (c *cloner) place(p reflect.Value) reflect.Value {
	t := p.Type().Elem()
	n := reflect.New(t)
	if t.Size() == 0 {
		return n
	}
	c.pointers[placeOf(p)] = n
	if fields := c.inner.fields[t]; len(fields) > 0 {
		for _, f := range fields {
			if _, is := c.pointers[place{unsafe.Add(p.UnsafePointer(), f.offset), f.of}]; is {
				c.late = append(c.late, p)
				break
			}
		}
		c.block(t, p.UnsafePointer(), 1, n.UnsafePointer())
	}
	return n
}

func (c *cloner) block(t reflect.Type, old unsafe.Pointer, n int, fresh unsafe.Pointer) {
	c.blocks = append(c.blocks, block{t, uintptr(old), uintptr(old) + uintptr(n)*t.Size(), fresh})
}

// inside returns the copy of what lies in a struct or slice that is being copied.
func (c *cloner) inside(p reflect.Value) reflect.Value {
	at, t := uintptr(p.UnsafePointer()), p.Type().Elem()
	for _, b := range c.blocks {
		if at < b.old || at >= b.end {
			continue
		}
		in := (at - b.old) % b.of.Size()
		if b.of == t && in == 0 || slices.Contains(c.inner.fields[b.of], innerField{in, t}) {
			return reflect.NewAt(t, unsafe.Add(b.fresh, at-b.old)).Convert(p.Type())
		}
	}
	return reflect.Value{}
}

// inner says of the types that can be reached from one which structs have fields that are structs to which something may point.
type inner struct {
	fields map[reflect.Type][]innerField
}

type innerField struct {
	offset uintptr
	of     reflect.Type
}

var innerTypes = map[reflect.Type]*inner{}

func innerOf(root reflect.Type) *inner {
	if known := innerTypes[root]; known != nil {
		return known
	}
	pointed, seen := map[reflect.Type]bool{}, map[reflect.Type]bool{}
	var visit func(t reflect.Type)
	visit = func(t reflect.Type) {
		if seen[t] {
			return
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer:
			if !shared(t.Elem()) {
				pointed[t.Elem()] = true
				visit(t.Elem())
			}
		case reflect.Slice, reflect.Array:
			visit(t.Elem())
		case reflect.Map:
			visit(t.Key())
			visit(t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				visit(t.Field(i).Type)
			}
		}
	}
	visit(root)
	in := &inner{fields: map[reflect.Type][]innerField{}}
	for t := range seen {
		var within func(s reflect.Type, offset uintptr)
		within = func(s reflect.Type, offset uintptr) {
			for i := range s.NumField() {
				if f := s.Field(i); f.Type.Kind() == reflect.Struct {
					if pointed[f.Type] {
						in.fields[t] = append(in.fields[t], innerField{offset + f.Offset, f.Type})
					}
					within(f.Type, offset+f.Offset)
				}
			}
		}
		if t.Kind() == reflect.Struct && !shared(t) {
			within(t, 0)
		}
	}
	innerTypes[root] = in
	return in
}

// into fills a fresh place.
func (c *cloner) into(to, from reflect.Value) {
	t := from.Type()
	if flat(t) {
		to.Set(from)
		return
	}
	switch t.Kind() {
	case reflect.Pointer:
		to.Set(c.pointer(from))
	case reflect.Interface:
		if from.IsNil() {
			return
		}
		e := from.Elem()
		n := reflect.New(e.Type()).Elem()
		c.into(n, addressable(e))
		to.Set(n)
	case reflect.Struct:
		for i := range t.NumField() {
			if t.Field(i).Name != "_" {
				c.into(writable(to.Field(i)), writable(from.Field(i)))
			}
		}
	case reflect.Array:
		for i := range from.Len() {
			c.into(to.Index(i), from.Index(i))
		}
	case reflect.Slice:
		if from.IsNil() {
			return
		}
		n := reflect.MakeSlice(t, from.Len(), from.Len())
		if flat(t.Elem()) {
			reflect.Copy(n, from)
		} else {
			if t.Elem().Kind() == reflect.Struct && from.Len() > 0 {
				c.block(t.Elem(), from.UnsafePointer(), from.Len(), n.UnsafePointer())
			}
			for i := range from.Len() {
				if !zero(from.Index(i)) {
					c.into(n.Index(i), from.Index(i))
				}
			}
		}
		to.Set(n)
	case reflect.Map:
		if from.IsNil() {
			return
		}
		if done, is := c.maps[from.UnsafePointer()]; is {
			to.Set(done)
			return
		}
		n := reflect.MakeMapWithSize(t, from.Len())
		c.maps[from.UnsafePointer()] = n
		k, v := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		for it := from.MapRange(); it.Next(); {
			k.SetZero()
			v.SetZero()
			c.into(k, addressable(it.Key()))
			c.into(v, addressable(it.Value()))
			n.SetMapIndex(k, v)
		}
		to.Set(n)
	default:
		panic("explore: cannot copy " + t.String())
	}
}

// zero tells of an element of a slice that it is all zeros.
func zero(v reflect.Value) bool {
	b := unsafe.Slice((*byte)(unsafe.Pointer(v.UnsafeAddr())), v.Type().Size())
	for len(b) >= 8 && binary.NativeEndian.Uint64(b) == 0 {
		b = b[8:]
	}
	return len(b) < 8 && !slices.ContainsFunc(b, func(x byte) bool { return x != 0 })
}

func addressable(v reflect.Value) reflect.Value {
	if v.CanAddr() {
		return v
	}
	n := reflect.New(v.Type()).Elem()
	n.Set(v)
	return n
}

// sumOf is the same for values that are the same: what order a map has and where things lie does not count.
func sumOf(of any) uint64 {
	h := hasher{d: xxhash.New(), seen: map[unsafe.Pointer]uint64{}}
	h.value(addressable(reflect.ValueOf(of)))
	return h.d.Sum64()
}

// wholeOf counts everything: also what no answer depends on, and in which order sets lie.
func wholeOf(of any) uint64 {
	h := hasher{d: xxhash.New(), seen: map[unsafe.Pointer]uint64{}, whole: true}
	h.value(addressable(reflect.ValueOf(of)))
	return h.d.Sum64()
}

type hasher struct {
	d     *xxhash.Digest
	whole bool
	seen  map[unsafe.Pointer]uint64 // in the order of the walk
	up    *hasher                   // of the map that this is an entry of
	deep  bool                      // shared things too
	buf   [9]byte
}

// met tells when a thing was met first on this walk.
func (h *hasher) met(p unsafe.Pointer) (uint64, bool) {
	for depth := uint64(0); h != nil; h, depth = h.up, depth+1 {
		if n, is := h.seen[p]; is {
			return depth<<32 | n, true
		}
	}
	return 0, false
}

// contents remembers what shared things hold; they are kept, so that no address is used twice.
var contents = map[unsafe.Pointer]content{}

type content struct {
	of  reflect.Value
	sum uint64
}

func contentOf(v reflect.Value) uint64 {
	p := v.UnsafePointer()
	if c, is := contents[p]; is && c.of.Type() == v.Type() {
		return c.sum
	}
	var sum uint64
	switch m := v.Interface().(type) {
	case *time.Location:
	case proto.Message:
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		if err != nil {
			panic(err)
		}
		sum = xxhash.Sum64(b)
	default:
		h := hasher{d: xxhash.New(), seen: map[unsafe.Pointer]uint64{}, deep: true}
		h.value(addressable(v.Elem()))
		sum = h.d.Sum64()
	}
	if len(contents) > 1<<18 {
		clear(contents)
	}
	contents[p] = content{v, sum}
	return sum
}

func (h *hasher) word(kind byte, n uint64) {
	h.buf[0] = kind
	binary.LittleEndian.PutUint64(h.buf[1:], n)
	_, _ = h.d.Write(h.buf[:])
}

// bits tells of a type that its bytes are all of it.
func bits(t reflect.Type) bool {
	switch k := t.Kind(); k {
	case reflect.Array:
		return bits(t.Elem())
	default:
		return k >= reflect.Bool && k <= reflect.Uint64
	}
}

// skipped fields are no state: buffers, what was, and numbers for metrics.
var skipped = map[string]bool{"home.common.out": true, "home.common.spare": true, "home.common.Counters": true,
	"node.Core.out": true, "coordinator.Core.out": true, "coordinator.Core.waits": true, "coordinator.Core.Claims": true,
	"model.Store.history": true, "model.Kind.Log": true, "model.Kind.oldest": true, "node.Core.sentTotal": true,
	"node.row.at":           true, // where it lies in gang.rows
	"model.Store.compacted": true,
	// What the cache derives from the rest, or remembers for time only: no answer depends on where it lies.
	"cache.Cache.index": true, "cache.Cache.changes": true, "cache.Cache.facts": true, "cache.Cache.changed": true, "cache.Cache.held": true,
	"cache.Cache.worst": true, "cache.Cache.counted": true, "cache.slot.held": true, "cache.slot.marked": true, "cache.class.sought": true,
	"cache.class.could": true, "cache.class.looked": true, "cache.class.counted": true, "cache.class.why": true, "cache.class.due": true}

// unordered fields are sets that lie in a slice: what takes one out moves the last into its place.
var unordered = map[string]bool{"node.gang.rows": true}

var fields = map[reflect.Type][]field{}

type field struct {
	i    int
	set  bool
	live int // the phase of a row, which decides whether this counts; -1 for always
}

// rowDone is the last phase of a row: what was still to be done about it is no state then (shard/node/types.go).
const rowDone = 6

// fieldsOf are those that count.
func fieldsOf(t reflect.Type) []field {
	if known, is := fields[t]; is {
		return known
	}
	name, _, _ := strings.Cut(t.String(), "[")
	out := []field{}
	for i := range t.NumField() {
		if n := t.Field(i).Name; n != "_" && !skipped[name+"."+n] {
			f := field{i, unordered[name+"."+n], -1}
			if name+"."+n == "node.row.resolveAt" {
				at, _ := t.FieldByName("phase")
				f.live = at.Index[0]
			}
			out = append(out, f)
		}
	}
	fields[t] = out
	return out
}

// set reads a slice of which the order does not count.
func (h *hasher) set(v reflect.Value) {
	sum := uint64(0)
	for i := range v.Len() {
		sum += h.apart(v.Index(i))
	}
	h.word(14, uint64(v.Len()))
	h.word(15, sum)
}

// apart reads what lies in no order, by itself.
func (h *hasher) apart(values ...reflect.Value) uint64 {
	e := hasher{d: xxhash.New(), seen: map[unsafe.Pointer]uint64{}, up: h, deep: h.deep, whole: h.whole}
	for _, v := range values {
		e.value(v)
	}
	return e.d.Sum64()
}

func (h *hasher) value(v reflect.Value) {
	t := v.Type()
	switch t.Kind() {
	case reflect.Bool:
		if v.Bool() {
			h.word(1, 1)
		} else {
			h.word(1, 0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		h.word(2, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uintptr:
		h.word(3, v.Uint())
	case reflect.Float32, reflect.Float64:
		h.word(4, math.Float64bits(v.Float()))
	case reflect.String:
		h.word(5, uint64(v.Len()))
		_, _ = h.d.WriteString(v.String())
	case reflect.Func:
	case reflect.Pointer:
		if v.IsNil() {
			h.word(6, 0)
			return
		}
		p := v.UnsafePointer()
		if shared(t.Elem()) && !h.deep {
			h.word(7, contentOf(writable(v)))
			return
		}
		if _, is := v.Interface().(*time.Location); is {
			return
		}
		if n, is := h.met(p); is {
			h.word(8, n)
			return
		}
		h.seen[p] = uint64(len(h.seen) + 1)
		h.word(9, 0)
		h.value(v.Elem())
	case reflect.Interface:
		if v.IsNil() {
			h.word(10, 0)
			return
		}
		h.word(11, uint64(len(v.Elem().Type().String())))
		_, _ = h.d.WriteString(v.Elem().Type().String())
		h.value(addressable(v.Elem()))
	case reflect.Struct:
		if t == timeType {
			h.word(12, uint64(writable(v).Interface().(time.Time).UnixNano()))
			return
		}
		if h.whole {
			for i := range t.NumField() {
				h.value(writable(v.Field(i)))
			}
			return
		}
		for _, f := range fieldsOf(t) {
			if f.live >= 0 && v.Field(f.live).Uint() == rowDone {
				continue
			}
			if e := writable(v.Field(f.i)); f.set {
				h.set(e)
			} else {
				h.value(e)
			}
		}
	case reflect.Array, reflect.Slice:
		h.word(13, uint64(v.Len()))
		if v.Len() > 0 && bits(t.Elem()) && v.Index(0).CanAddr() {
			_, _ = h.d.Write(unsafe.Slice((*byte)(unsafe.Pointer(v.Index(0).UnsafeAddr())), v.Len()*int(t.Elem().Size())))
			return
		}
		for i := range v.Len() {
			if e := v.Index(i); t.Kind() == reflect.Array || !zero(e) {
				h.word(16, uint64(i))
				h.value(e)
			}
		}
	case reflect.Map:
		sum := uint64(0)
		for it := v.MapRange(); it.Next(); { // each by itself: the sum does not know the order
			sum += h.apart(addressable(it.Key()), addressable(it.Value()))
		}
		h.word(14, uint64(v.Len()))
		h.word(15, sum)
	default:
		panic("explore: cannot read " + t.String())
	}
}

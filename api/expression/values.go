package expression

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Value is the value of a variable.
type Value struct{ of ref.Val }

// Int is a value of IntType.
func Int(i int64) Value { return Value{types.Int(i)} }

// Bool is a value of BoolType.
func Bool(b bool) Value { return Value{types.Bool(b)} }

// Text is a value of TextType, "" if it is longer than MaxValue.
func Text(s string) Value {
	if len(s) > MaxValue {
		s = ""
	}
	return Value{types.String(s)}
}

// Time is a value of TimeType.
func Time(t time.Time) Value { return Value{types.Timestamp{Time: t.UTC()}} }

// Texts is a value of TextsType.
func Texts(m map[string]string) Value {
	return ordered(m, func(s string) (ref.Val, bool) { return types.String(s), len(s) <= MaxValue })
}

// Amounts is a value of AmountsType.
func Amounts(m map[string]int64) Value {
	return ordered(m, func(i int64) (ref.Val, bool) { return types.Int(i), true })
}

// List is a value of ListType: its first MaxEntries elements, which are values of TextsType.
func List(of ...Value) Value {
	list := make([]ref.Val, 0, min(len(of), MaxEntries))
	for _, v := range of[:min(len(of), MaxEntries)] {
		list = append(list, v.of)
	}
	return Value{types.NewRefValList(types.DefaultTypeAdapter, list)}
}

// Bounded returns what there is room for of some words of an object in so many bytes: in the order of their keys,
// without values that no expression sees.
func Bounded(m map[string]string, room int) map[string]string {
	var out map[string]string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		value := m[key]
		if len(value) > MaxValue {
			continue
		}
		if room -= len(key) + len(value); room < 0 || len(out) == MaxEntries {
			break
		}
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}

func ordered[V any](m map[string]V, read func(V) (ref.Val, bool)) Value {
	out := &entries{}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if len(out.keys) == MaxEntries {
			break
		}
		if v, fits := read(m[key]); fits {
			out.keys, out.values = append(out.keys, key), append(out.values, v)
		}
	}
	return Value{out}
}

// bound are the values of a program's variables.
type bound struct {
	variables []Variable
	values    []Value
}

func (p *Program) bind(values []Value) cel.Activation {
	if len(values) != len(p.variables) {
		panic(fmt.Sprintf("expression: %d values for %d variables", len(values), len(p.variables)))
	}
	return bound{p.variables, values}
}

// ResolveName returns the value of a variable.
func (b bound) ResolveName(name string) (any, bool) {
	for i, v := range b.variables {
		if v.Name == name {
			return b.values[i].of, true
		}
	}
	return nil, false
}

// Parent returns nil: there is no other scope.
func (bound) Parent() cel.Activation { return nil }

// entries is a map in the order of its keys. The library's own are walked in random order, which decides what errors
// say, and what an evaluation costs.
type entries struct {
	keys   []string
	values []ref.Val
}

var _ traits.Mapper = (*entries)(nil)

// Find returns the value of a key.
func (e *entries) Find(key ref.Val) (ref.Val, bool) {
	k, is := key.(types.String)
	if !is {
		return nil, false
	}
	i, found := slices.BinarySearch(e.keys, string(k))
	if !found {
		return nil, false
	}
	return e.values[i], true
}

// Get returns the value of a key, or an error that names it.
func (e *entries) Get(key ref.Val) ref.Val {
	if v, found := e.Find(key); found {
		return v
	}
	return types.NewErr("no such key: %v", key)
}

// Contains reports whether there is a key.
func (e *entries) Contains(key ref.Val) ref.Val {
	_, found := e.Find(key)
	return types.Bool(found)
}

// Size returns the number of keys.
func (e *entries) Size() ref.Val { return types.Int(len(e.keys)) }

// Iterator walks the keys.
func (e *entries) Iterator() traits.Iterator {
	keys := make([]ref.Val, len(e.keys))
	for i, k := range e.keys {
		keys[i] = types.String(k)
	}
	return types.NewRefValList(types.DefaultTypeAdapter, keys).(traits.Lister).Iterator()
}

// Equal compares with another map.
func (e *entries) Equal(other ref.Val) ref.Val {
	o, is := other.(traits.Mapper)
	if !is || o.Size() != e.Size() {
		return types.False
	}
	for i, k := range e.keys {
		if v, found := o.Find(types.String(k)); !found || types.Equal(e.values[i], v) != types.True {
			return types.False
		}
	}
	return types.True
}

// Type returns that it is a map.
func (e *entries) Type() ref.Type { return types.MapType }

// Value returns a map of Go.
func (e *entries) Value() any {
	out := make(map[ref.Val]ref.Val, len(e.keys))
	for i, k := range e.keys {
		out[types.String(k)] = e.values[i]
	}
	return out
}

// ConvertToType returns the map, or its type.
func (e *entries) ConvertToType(to ref.Type) ref.Val {
	switch to {
	case types.MapType:
		return e
	case types.TypeType:
		return types.MapType
	}
	return types.NewErr("type conversion error from map to %q", to.TypeName())
}

// ConvertToNative is refused: nobody asks for it.
func (e *entries) ConvertToNative(to reflect.Type) (any, error) {
	return nil, fmt.Errorf("no conversion of a map to %v", to)
}

// String shows the map.
func (e *entries) String() string {
	var out strings.Builder
	for i, k := range e.keys {
		fmt.Fprintf(&out, "%s=%v ", k, e.values[i].Value())
	}
	return strings.TrimSpace(out.String())
}

// sizes are the most that values have. Where the library loses sight of what a text comes from, it is assumed to be a
// value: the limit of the evaluation itself holds whatever was estimated.
type sizes struct{}

// EstimateSize returns how large a value is at most.
func (sizes) EstimateSize(e checker.AstNode) *checker.SizeEstimate {
	if e.ComputedSize() != nil {
		return nil
	}
	switch e.Type().Kind() {
	case types.MapKind, types.ListKind:
		return &checker.SizeEstimate{Max: MaxEntries}
	case types.StringKind, types.BytesKind:
		return &checker.SizeEstimate{Max: maxKey}
	case types.TypeKind:
		return &checker.SizeEstimate{Max: 1}
	}
	return nil
}

// EstimateCallCost leaves functions to the library.
func (sizes) EstimateCallCost(_, _ string, _ *checker.AstNode, _ []checker.AstNode) *checker.CallEstimate {
	return nil
}

// maxKey is the longest key of a label or annotation. It is longer than a value.
const maxKey = 317

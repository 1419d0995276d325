package sim

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash"
	"log/slog"
	"reflect"
	"slices"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
)

// output adds one output of a core to the hash of outputs, with its time and its process, before anything is done with
// it. The log has no line for statuses, conditions, events and spans; this hash covers them, so that a change of a core
// that claims to change nothing can show it. A run without Config.Outputs pays nothing for it.
func (w *world) output(from api.Incarnation, o any) {
	if w.outputs == nil {
		return
	}
	fmt.Fprintf(w.outputs, "%d %s %T", w.now.Sub(w.start), from, o)
	hashValue(w.outputs, reflect.ValueOf(o))
}

// hashValue writes a value with all that it points to, the same bytes for equal values: no addresses, maps in the order
// of their keys. Strings and lists are written behind their lengths, so that no two values are written alike. Values
// must not form cycles.
func hashValue(h hash.Hash, v reflect.Value) {
	if !v.IsValid() {
		hashNumber(h, 0)
		return
	}
	if v.CanInterface() && !isNil(v) {
		switch x := v.Interface().(type) {
		case proto.Message:
			hashText(h, must(proto.MarshalOptions{Deterministic: true}.Marshal(x)))
			return
		case slog.Value:
			if x = x.Resolve(); x.Kind() == slog.KindAny {
				hashValue(h, reflect.ValueOf(x.Any()))
				return
			}
			hashText(h, []byte(x.String()))
			return
		case error:
			hashText(h, []byte(x.Error()))
			return
		case json.Marshaler: // times and quantities, which keep other things in their fields
			hashText(h, must(x.MarshalJSON()))
			return
		}
	}
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			hashNumber(h, 1)
		} else {
			hashNumber(h, 0)
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		hashNumber(h, uint64(v.Int()))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		hashNumber(h, v.Uint())
	case reflect.String:
		hashText(h, []byte(v.String()))
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			hashNumber(h, 0)
			return
		}
		hashNumber(h, 1)
		if v.Kind() == reflect.Interface {
			hashText(h, []byte(v.Elem().Type().String()))
		}
		hashValue(h, v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			hashValue(h, v.Field(i))
		}
	case reflect.Slice, reflect.Array:
		hashNumber(h, uint64(v.Len()))
		for i := range v.Len() {
			hashValue(h, v.Index(i))
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return compareKeys(a, b) })
		hashNumber(h, uint64(len(keys)))
		for _, k := range keys {
			hashValue(h, k)
			hashValue(h, v.MapIndex(k))
		}
	default:
		panic(fmt.Sprintf("outputs hold a %s, which has no bytes of its own", v.Type()))
	}
}

// compareKeys orders keys of maps, which are strings and numbers.
func compareKeys(a, b reflect.Value) int {
	switch {
	case a.Kind() == reflect.String && a.String() < b.String(),
		a.CanInt() && a.Int() < b.Int(),
		a.CanUint() && a.Uint() < b.Uint():
		return -1
	case a.Kind() != reflect.String && !a.CanInt() && !a.CanUint():
		panic(fmt.Sprintf("a map in an output has keys of type %s, which have no order here", a.Type()))
	}
	return 1
}

func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface, reflect.Map, reflect.Slice:
		return v.IsNil()
	}
	return false
}

func hashNumber(h hash.Hash, n uint64) { _, _ = h.Write(binary.LittleEndian.AppendUint64(nil, n)) }

func hashText(h hash.Hash, b []byte) {
	hashNumber(h, uint64(len(b)))
	_, _ = h.Write(b)
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

package kube

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	k8sjson "sigs.k8s.io/json"

	"basalt.dev/basalt/api/metric"
)

// Objects are decoded one by one, because the API server stores objects that Go's types refuse: the schema of a kind takes
// 2026-01-01T00:00:00.5z for a time and 5..5 for an amount. One such object must not stop its kind.
//
//   - Where only the status cannot be read, the object is handed on with what can be read of it. In JSON each field of the
//     status is decoded by itself, and those that fail stay zero: the memory of a gang's start, which is a condition, must not
//     be lost with the time of another one. In protobuf the status is left out: a pod counts as running then.
//   - Where its spec cannot be read, the object exists with a spec that nobody knows. It is handed on as Unreadable: whoever
//     follows the kind decides. A Queue keeps the limits in force, and admits nothing where there are none; other objects stay
//     as they were read last, and are not there for a process that never read them.
//   - Where not even its metadata can be read, it is left out.
//
// Each is counted in Unread, and logged once a version.

// Unread counts objects that could not be read, or only in part.
var Unread = metric.WatchUnreadable.Counters()

// Unreadable is the object of a watch event whose spec could not be decoded.
type Unreadable struct {
	Object runtime.Object // has only its metadata
	Err    error
}

func (u *Unreadable) GetObjectKind() schema.ObjectKind { return u.Object.GetObjectKind() }
func (u *Unreadable) DeepCopyObject() runtime.Object {
	return &Unreadable{Object: u.Object.DeepCopyObject(), Err: u.Err}
}
func (u *Unreadable) GetObjectMeta() metav1.Object { return u.Object.(metav1.Object) }

// decoded is what became of one object. Without an object not even its metadata can be read. With err the object has only its
// metadata, and with partly a part of its status.
type decoded[T runtime.Object] struct {
	object T
	there  bool
	err    error
	partly error
}

// unread notes objects of one resource that could not be read.
type unread struct {
	resource string
	log      *slog.Logger

	mu   sync.Mutex
	told map[types.UID]string // versions, of objects that were logged
}

// maxTold is of how many objects it is known that they were logged; with more, some are logged again.
const maxTold = 1024

func newUnread(resource string, log *slog.Logger) *unread {
	return &unread{resource: resource, log: log, told: map[types.UID]string{}}
}

// note counts an object that could not be read as a whole, and logs it once a version.
func note[T runtime.Object](u *unread, d decoded[T]) {
	if d.there && d.err == nil && d.partly == nil {
		return
	}
	Unread.WithLabelValues(u.resource).Inc()
	if !d.there {
		u.log.Error("cannot decode an object, not even its name, ignoring it", "resource", u.resource, "error", d.err)
		return
	}
	m := any(d.object).(metav1.Object)
	u.mu.Lock()
	told := u.told[m.GetUID()] == m.GetResourceVersion()
	if len(u.told) >= maxTold {
		clear(u.told)
	}
	u.told[m.GetUID()] = m.GetResourceVersion()
	u.mu.Unlock()
	if told {
		return
	}
	name := strings.TrimPrefix(m.GetNamespace()+"/"+m.GetName(), "/")
	if d.err != nil {
		u.log.Error("cannot decode an object, keeping its previous version", "resource", u.resource, "object", name, "version", m.GetResourceVersion(), "error", d.err)
	} else {
		u.log.Warn("cannot decode the status of an object, or only part of it", "resource", u.resource, "object", name, "version", m.GetResourceVersion(), "error", d.partly)
	}
}

func fresh[T runtime.Object]() T { return reflect.New(reflect.TypeFor[T]().Elem()).Interface().(T) }

// decodeJSON reads an object of a kind that the API server has as JSON only.
func decodeJSON[T runtime.Object](raw []byte) decoded[T] {
	err := error(errAbsurd)
	if !absurd(raw) {
		o := fresh[T]()
		if err = k8sjson.UnmarshalCaseSensitivePreserveInts(raw, o); err == nil {
			return decoded[T]{object: o, there: true}
		}
	}
	var parts struct {
		Metadata json.RawMessage `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
		Status   json.RawMessage `json:"status"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return decoded[T]{err: err}
	}
	o := fresh[T]()
	fields := fieldsOf(reflect.ValueOf(o).Elem())
	if metadata, ok := fields["metadata"]; !ok || salvage(parts.Metadata, metadata) != nil {
		return decoded[T]{err: err}
	}
	if spec, ok := fields["spec"]; ok {
		if err := salvage(parts.Spec, spec); err != nil {
			spec.SetZero()
			return decoded[T]{object: o, there: true, err: err}
		}
	}
	if status, ok := fields["status"]; ok {
		if err := salvage(parts.Status, status); err != nil {
			return decoded[T]{object: o, there: true, partly: err}
		}
	}
	return decoded[T]{object: o, there: true}
}

// salvage reads into a value as much as can be read: of structs, lists and maps whatever can be read by itself. It returns
// what could not be read first.
func salvage(raw json.RawMessage, into reflect.Value) error {
	if len(raw) == 0 {
		return nil
	}
	err := error(errAbsurd)
	_, quantity := into.Addr().Interface().(*resource.Quantity)
	if !absurd(raw) {
		read := reflect.New(into.Type())
		if err = k8sjson.UnmarshalCaseSensitivePreserveInts(raw, read.Interface()); err == nil {
			into.Set(read.Elem())
			return nil
		}
	}
	if _, own := into.Addr().Interface().(json.Unmarshaler); own || quantity {
		return err
	}
	var lost error // of a part
	note := func(part string, err error) {
		if err != nil && lost == nil {
			lost = fmt.Errorf("%s: %w", part, err)
		}
	}
	switch into.Kind() {
	case reflect.Pointer:
		at := reflect.New(into.Type().Elem())
		err = salvage(raw, at.Elem())
		into.Set(at)
		return err
	case reflect.Struct:
		var parts map[string]json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return err
		}
		fields := fieldsOf(into)
		for _, name := range slices.Sorted(maps.Keys(fields)) {
			note(name, salvage(parts[name], fields[name]))
		}
	case reflect.Slice:
		var parts []json.RawMessage
		if json.Unmarshal(raw, &parts) != nil {
			return err
		}
		all := reflect.MakeSlice(into.Type(), len(parts), len(parts))
		for i, part := range parts {
			note(strconv.Itoa(i), salvage(part, all.Index(i)))
		}
		into.Set(all)
	case reflect.Map:
		var parts map[string]json.RawMessage
		if json.Unmarshal(raw, &parts) != nil || into.Type().Key().Kind() != reflect.String {
			return err
		}
		all := reflect.MakeMap(into.Type())
		for _, name := range slices.Sorted(maps.Keys(parts)) {
			value := reflect.New(into.Type().Elem()).Elem()
			if err := salvage(parts[name], value); err != nil {
				note(name, err) // and it is left out
				continue
			}
			all.SetMapIndex(reflect.ValueOf(name).Convert(into.Type().Key()), value)
		}
		into.Set(all)
	case reflect.String: // it looks like an amount, and is none
		if read := reflect.New(into.Type()); k8sjson.UnmarshalCaseSensitivePreserveInts(raw, read.Interface()) == nil {
			into.Set(read.Elem())
			return nil
		}
		return err
	default:
		return err
	}
	return lost
}

// Of an amount such as 99999999999999999999e999999 Kubernetes' type takes minutes to read, or to compare, or to write. An
// amount has no more digits than these, before and behind its e. No amount that is in use comes near.
const (
	maxDigits         = 40
	maxExponentDigits = 3
)

var errAbsurd = fmt.Errorf("an amount of more than %d digits, or with an exponent of more than %d", maxDigits, maxExponentDigits)

// absurd reports whether a string in JSON looks like such an amount.
func absurd(raw []byte) bool {
	digits := func(i int) (end, count int) {
		for end = i; end < len(raw) && ('0' <= raw[end] && raw[end] <= '9' || raw[end] == '.'); end++ {
			count++
		}
		return end, count
	}
	sign := func(i int) int {
		if i < len(raw) && (raw[i] == '-' || raw[i] == '+') {
			i++
		}
		return i
	}
	for i := 0; i < len(raw); i++ {
		next := bytes.IndexByte(raw[i:], '"')
		if next < 0 {
			return false
		}
		i += next
		end, count := digits(sign(i + 1))
		if count == 0 {
			continue
		}
		exponent := 0
		if end < len(raw) && (raw[end] == 'e' || raw[end] == 'E') {
			end, exponent = digits(sign(end + 1))
		}
		if count <= maxDigits && exponent <= maxExponentDigits {
			continue
		}
		for end < len(raw) && ('a' <= raw[end]|0x20 && raw[end]|0x20 <= 'z') {
			end++
		}
		if end < len(raw) && raw[end] == '"' {
			return true
		}
	}
	return false
}

// fieldsOf returns the fields of a struct by their names in JSON, those of embedded structs included.
func fieldsOf(v reflect.Value) map[string]reflect.Value {
	all := map[string]reflect.Value{}
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !field.IsExported() || name == "-":
		case name == "" && field.Anonymous && field.Type.Kind() == reflect.Struct:
			for name, f := range fieldsOf(v.Field(i)) {
				all[name] = f
			}
		case name == "":
			all[field.Name] = v.Field(i)
		default:
			all[name] = v.Field(i)
		}
	}
	return all
}

// unmarshaler is implemented by the kinds that are built in.
type unmarshaler interface{ Unmarshal([]byte) error }

// decodeProtobuf reads an object of a built-in kind. Of each of them field 1 is the metadata, and of those that have them
// field 2 is the spec and field 3 the status.
func decodeProtobuf[T runtime.Object](raw []byte) decoded[T] {
	o := fresh[T]()
	err := any(o).(unmarshaler).Unmarshal(raw)
	if err == nil {
		return decoded[T]{object: o, there: true}
	}
	metadata, split := protobufFields(raw, 1)
	without := fresh[T]()
	if len(metadata) == 0 || any(without).(unmarshaler).Unmarshal(metadata) != nil {
		return decoded[T]{err: err}
	}
	whole := fresh[T]()
	if rest, _ := protobufFields(raw, 1, 2); split == nil && any(whole).(unmarshaler).Unmarshal(rest) == nil && hasStatus(whole) {
		return decoded[T]{object: whole, there: true, partly: err}
	}
	return decoded[T]{object: without, there: true, err: err}
}

func hasStatus(o runtime.Object) bool {
	v := reflect.ValueOf(o).Elem()
	return v.FieldByName("Spec").IsValid() && v.FieldByName("Status").IsValid()
}

// protobufFields returns a message's fields of these numbers, each with its tag, in the order in which they come.
func protobufFields(message []byte, numbers ...protowire.Number) (fields []byte, err error) {
	err = eachField(message, func(number protowire.Number, _ protowire.Type, _ int, field []byte) {
		if slices.Contains(numbers, number) {
			fields = append(fields, field...)
		}
	})
	return fields, err
}

// protobufBytes returns what a message has last in a field of bytes or of another message. It is a part of the message.
func protobufBytes(message []byte, wanted protowire.Number) (value []byte, err error) {
	err = eachField(message, func(number protowire.Number, kind protowire.Type, tag int, field []byte) {
		if number == wanted && kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(field[tag:])
		}
	})
	if err != nil {
		return nil, err
	}
	return value, nil
}

// eachField calls do for each field of a message, in order, up to the first that cannot be read. The field begins with its
// tag, of so many bytes.
func eachField(message []byte, do func(number protowire.Number, kind protowire.Type, tag int, field []byte)) error {
	for len(message) > 0 {
		number, kind, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return protowire.ParseError(tag)
		}
		size := protowire.ConsumeFieldValue(number, kind, message[tag:])
		if size < 0 {
			return protowire.ParseError(size)
		}
		do(number, kind, tag, message[:tag+size])
		message = message[tag+size:]
	}
	return nil
}

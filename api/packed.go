package api

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// Packed pods. A process that watches pods for others (package relay) reduces each once, and sends what FromPod made of
// it. To read that takes a fraction of what it takes to decode a v1.Pod and to reduce it, which every process would do.
// Both ends must be the same program with the same rules, which a form names; others are sent v1.Pods.

// PackedForm names what PackPod writes of pods that FromPod made by some rules, in a build of Basalt.
func PackedForm(build string, rules Rules) string {
	rules.EmptyAll = false // who depends on it is not packed
	b, err := json.Marshal(rules)
	if err != nil {
		panic(err) // it has names and booleans only
	}
	return build + " " + string(b)
}

// Packable reports whether all that FromPod reads of a pod is in the pod: nothing in it depends on other objects.
func Packable(p *v1.Pod, as *Pod) bool {
	if len(p.Spec.Volumes)+len(as.Claims)+len(as.Scarce)+len(as.Class.Attach) > 0 {
		return false
	}
	if !as.Ours || as.Node != "" {
		return true
	}
	device := func(a Amount) bool { return strings.IndexByte(a.Resource, '/') > 0 } // a DeviceClass may back it
	return !SpreadsByEmpty(p) && !slices.ContainsFunc(as.Class.Requests, device)
}

// Flags of a packed pod.
const (
	packedOurs = 1 << iota
	packedLent
	packedFinished
	packedStarted
	packedDeleting
	packedGated
	packedPerController
	packedUnlisted
	packedPreemptionNever
	packedSucceeded
	packedSays // whether it may be preempted,
	packedPreemptible
	packedRefused
	packedCreated
)

// PackPod appends a pod to b: first its version, then what does not depend on that.
func PackPod(b []byte, p *Pod) []byte {
	refused := p.Refused
	if refused == nil {
		refused = &Refusal{}
	}
	texts := [...]string{p.ResourceVersion, p.UID, p.Namespace, p.Name, p.Node, p.Nominated, p.Gang, p.Group, p.Role,
		p.Queue, p.QueueElsewhere, p.VolcanoQueue, p.Unheeded, p.Condition.Reason, p.Condition.Message, p.User, p.Maker.Group,
		refused.Reason, refused.Message}
	size := 0
	for _, s := range texts {
		size += len(s)
	}
	b = binary.AppendUvarint(b, uint64(len(p.ResourceVersion)))
	b = append(b, p.ResourceVersion...)
	b = binary.AppendUvarint(b, uint64(size-len(p.ResourceVersion)))
	for _, s := range texts[1:] {
		b = binary.AppendUvarint(b, uint64(len(s)))
	}
	for _, s := range texts[1:] {
		b = append(b, s...)
	}
	flags := uint64(0)
	for i, is := range [...]bool{p.Ours, p.Lent, p.Finished, p.Started, p.Deleting, p.Gated, p.PerController, p.Unlisted,
		p.PreemptionNever, p.End.Succeeded, p.Preemptible != nil, p.Preemptible != nil && *p.Preemptible, p.Refused != nil,
		!p.Created.IsZero()} {
		if is {
			flags |= 1 << i
		}
	}
	b = append(binary.AppendUvarint(b, flags), byte(p.GroupKind))
	for _, n := range [...]int64{int64(p.GraceSeconds), int64(p.LimitSeconds), int64(p.DeletionCost), p.Until,
		p.End.At, int64(p.GroupMin), p.Priority} {
		b = binary.AppendVarint(b, n)
	}
	b = binary.LittleEndian.AppendUint64(b, p.Owner)
	if !p.Created.IsZero() {
		b = binary.AppendVarint(b, p.Created.Unix())
		b = binary.AppendUvarint(b, uint64(p.Created.Nanosecond()))
	}
	return appendPackedClass(appendPackedLabels(b, p.Labels), p.Class)
}

func appendPackedLabels(b []byte, l *Labels) []byte {
	of := l.set()
	size := 0
	for k, v := range of {
		size += sizeOfText(k) + sizeOfText(v)
	}
	b = binary.AppendUvarint(b, uint64(size))
	for _, k := range slices.Sorted(maps.Keys(of)) {
		b = appendText(appendText(b, k), of[k])
	}
	return b
}

func appendPackedClass(b []byte, c *Class) []byte {
	start := len(b)
	b = append(b, 0, 0, 0, 0)
	b = binary.AppendUvarint(b, uint64(len(c.Requests)))
	for _, a := range c.Requests {
		b = binary.AppendVarint(appendText(b, a.Resource), a.Value)
	}
	for _, part := range [...][]byte{c.Constraints, c.Repels, c.Joins, c.Wishes, c.Leanings} {
		b = append(binary.AppendUvarint(b, uint64(len(part))), part...)
	}
	binary.LittleEndian.PutUint32(b[start:], uint32(len(b)-start-4))
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func sizeOfText(s string) int {
	return len(binary.AppendUvarint(make([]byte, 0, 10), uint64(len(s)))) + len(s)
}

// PackedBody returns what of a packed pod does not depend on its version.
func PackedBody(b []byte) []byte {
	r := packedReader{b: b}
	r.bytes(r.length())
	return r.b
}

// packedReader reads what PackPod writes. Once something is wrong, all that it returns is empty.
type packedReader struct {
	b   []byte
	bad bool
}

func (r *packedReader) fail() {
	r.b, r.bad = nil, true
}

func (r *packedReader) length() int {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > uint64(len(r.b)) {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}

func (r *packedReader) number() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *packedReader) signed() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *packedReader) bytes(n int) []byte {
	if n > len(r.b) {
		r.fail()
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// packedTexts is how many strings there are after the version.
const packedTexts = 18

var errPacked = errors.New("not a packed pod")

// Unpacker reads packed pods. Like Classes, it has one Class, and one set of labels, for all pods that have the same,
// and forgets those that no pod had lately. The zero value is empty; it is not for concurrent use.
type Unpacker struct {
	classes recently[*Class]
	labels  recently[*Labels]
}

// recently keeps what was made of texts lately.
type recently[V any] struct {
	now, before map[string]V
	bytes       int // of texts in now
}

// of returns what make makes of a text, or has made.
func (r *recently[V]) of(text []byte, make func([]byte) (V, error)) (V, error) {
	if v, known := r.now[string(text)]; known {
		return v, nil
	}
	v, known := r.before[string(text)]
	if !known {
		var err error
		if v, err = make(text); err != nil {
			return v, err
		}
	}
	if len(r.now) >= keptClasses || r.bytes >= keptBytes || r.now == nil {
		r.now, r.before, r.bytes = map[string]V{}, r.now, 0
	}
	r.now[string(text)] = v
	r.bytes += len(text)
	return v, nil
}

// Pod returns the pod as FromPod made it. It does not keep b.
func (u *Unpacker) Pod(b []byte) (*Pod, error) {
	r := packedReader{b: b}
	p := &Pod{ResourceVersion: string(r.bytes(r.length()))}
	size := r.length()
	var lengths [packedTexts]int
	for i := range lengths {
		lengths[i] = r.length()
	}
	text := string(r.bytes(size))
	var refused Refusal
	for i, to := range [packedTexts]*string{&p.UID, &p.Namespace, &p.Name, &p.Node, &p.Nominated, &p.Gang, &p.Group,
		&p.Role, &p.Queue, &p.QueueElsewhere, &p.VolcanoQueue, &p.Unheeded, &p.Condition.Reason, &p.Condition.Message,
		&p.User, &p.Maker.Group, &refused.Reason, &refused.Message} {
		if lengths[i] > len(text) {
			return nil, errPacked
		}
		*to, text = text[:lengths[i]], text[lengths[i]:]
	}
	flags := r.number()
	p.Ours, p.Lent, p.Finished = flags&packedOurs != 0, flags&packedLent != 0, flags&packedFinished != 0
	p.Started, p.Deleting, p.Gated = flags&packedStarted != 0, flags&packedDeleting != 0, flags&packedGated != 0
	p.PerController, p.Unlisted = flags&packedPerController != 0, flags&packedUnlisted != 0
	p.PreemptionNever, p.End.Succeeded = flags&packedPreemptionNever != 0, flags&packedSucceeded != 0
	if flags&packedSays != 0 {
		is := flags&packedPreemptible != 0
		p.Preemptible = &is
	}
	if flags&packedRefused != 0 {
		p.Refused = &refused
	}
	if kind := r.bytes(1); len(kind) == 1 {
		p.GroupKind = GroupKind(kind[0])
	}
	p.GraceSeconds, p.LimitSeconds, p.DeletionCost = int32(r.signed()), int32(r.signed()), int32(r.signed())
	p.Until, p.End.At, p.GroupMin, p.Priority = r.signed(), r.signed(), int(r.signed()), r.signed()
	if owner := r.bytes(8); len(owner) == 8 {
		p.Owner = binary.LittleEndian.Uint64(owner)
	}
	if flags&packedCreated != 0 {
		seconds := r.signed()
		p.Created = time.Unix(seconds, int64(r.number()))
	}
	labels := r.bytes(r.length())
	class := r.bytes(r.fixed())
	if r.bad || len(r.b)+len(text) > 0 {
		return nil, errPacked
	}
	var err error
	if p.Labels, err = u.labels.of(labels, unpackLabels); err != nil {
		return nil, err
	}
	p.Class, err = u.classes.of(class, unpackClass)
	return p, err
}

func (r *packedReader) fixed() int {
	b := r.bytes(4)
	if len(b) < 4 {
		return 0
	}
	return int(binary.LittleEndian.Uint32(b))
}

func unpackLabels(b []byte) (*Labels, error) {
	r := packedReader{b: b}
	of := map[string]string{}
	for len(r.b) > 0 {
		k := string(r.bytes(r.length()))
		of[k] = string(r.bytes(r.length()))
	}
	if r.bad {
		return nil, fmt.Errorf("labels: %w", errPacked)
	}
	return NewLabels(of), nil
}

func unpackClass(b []byte) (*Class, error) {
	r := packedReader{b: b}
	var c Class
	for range r.length() {
		name := string(r.bytes(r.length()))
		c.Requests = append(c.Requests, Amount{name, r.signed()})
	}
	for _, part := range [...]*[]byte{&c.Constraints, &c.Repels, &c.Joins, &c.Wishes, &c.Leanings} {
		if of := r.bytes(r.length()); len(of) > 0 {
			*part = slices.Clone(of)
		}
	}
	if r.bad || len(r.b) > 0 {
		return nil, fmt.Errorf("class: %w", errPacked)
	}
	return MakeClass(c), nil
}

package kube

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"

	"basalt.dev/basalt/api/v1beta1"
)

const badTime = "2026-01-01T00:00:00.5z" // the API server's format date-time takes it

// What of an object in JSON can be read, and what is said of the rest.
func TestDecodeJSON(t *testing.T) {
	const meta = `"metadata":{"namespace":"ns","name":"g","uid":"u","resourceVersion":"7"}`
	const spec = `"spec":{"queue":"q","schedulingPolicy":{"gang":{"minCount":2}}}`
	for _, test := range []struct{ what, object, want string }{
		{"whole", `{` + meta + `,` + spec + `,"status":{"epoch":3,"writer":"w","sequence":4,"pods":5}}`,
			"min 2, epoch 3, pods 5"},
		{"a time in the status", `{` + meta + `,` + spec + `,"status":{"epoch":3,"writer":"w","sequence":4,"pods":5,"conditions":[
			{"type":"QuotaReserved","status":"False","lastTransitionTime":"` + badTime + `","reason":"r"},
			{"type":"PodGroupInitiallyScheduled","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"r"}]}}`,
			"min 2, epoch 3, pods 5, QuotaReserved=False, PodGroupInitiallyScheduled=True; status: conditions: 0: lastTransitionTime"},
		{"a number in the status", `{` + meta + `,` + spec + `,"status":{"epoch":1e30,"writer":"w","pods":5}}`,
			"min 2, epoch 0, pods 5; status: epoch"},
		{"a status of another type", `{` + meta + `,` + spec + `,"status":"Running"}`,
			"min 2, epoch 0, pods 0; status: json"},
		{"a number in the spec", `{` + meta + `,"spec":{"schedulingPolicy":{"gang":{"minCount":1e30}}},"status":{"epoch":3}}`,
			"unreadable: schedulingPolicy: gang: minCount"},
		{"a spec of another type", `{` + meta + `,"spec":[]}`, "unreadable: json"},
		{"metadata of another type", `{"metadata":{"name":"g","labels":[]},` + spec + `}`, "nothing"},
		{"a time in the metadata", `{"metadata":{"name":"g","creationTimestamp":"` + badTime + `"},` + spec + `}`, "nothing"},
		{"no object", `[]`, "nothing"},
		{"no JSON", `{"metadata"`, "nothing"},
		{"a name that looks like an amount", `{` + meta + `,"spec":{"queue":"1e999999","schedulingPolicy":{"gang":{"minCount":2}}},"status":{"epoch":3}}`,
			"min 2, epoch 3, pods 0"},
	} {
		t.Run(test.what, func(t *testing.T) {
			d := decodeJSON[*v1beta1.PodGroup]([]byte(test.object))
			var got string
			switch {
			case !d.there:
				got = "nothing"
			case d.err != nil:
				got = "unreadable: " + d.err.Error()
				if d.object.Name != "g" || d.object.ResourceVersion != "7" || d.object.Spec.SchedulingPolicy.Gang.MinCount != 0 || d.object.Status != nil {
					t.Errorf("the object is %+v", d.object)
				}
			default:
				s := d.object.Status
				got = fmt.Sprintf("min %d, epoch %d, pods %d", d.object.Spec.SchedulingPolicy.Gang.MinCount, s.Epoch, s.Pods)
				for _, c := range s.Conditions {
					got += ", " + c.Type + "=" + string(c.Status)
				}
				if d.partly != nil {
					got += "; status: " + d.partly.Error()
				}
			}
			if !strings.HasPrefix(got, test.want) || d.partly == nil && d.err == nil && got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// Amounts that Kubernetes' type does not come back from are left out of a status, and make a spec unreadable.
func TestAbsurdAmounts(t *testing.T) {
	began := time.Now()
	for _, amount := range []string{
		"99999999999999999999e999999999", "-99999999999999999999.5E+999999999", "0.1e-999999999", strings.Repeat("9", 60000), strings.Repeat("9", 60000) + "Ei", "5..5", "x",
	} {
		const queue = `{"metadata":{"name":"q","resourceVersion":"7"},"spec":{"capability":{"cpu":%q}},"status":{"epoch":3,"charged":{"memory":"1Gi","cpu":%q}}}`
		d := decodeJSON[*v1beta1.Queue](fmt.Appendf(nil, queue, "4", amount))
		if !d.there || d.err != nil || d.partly == nil {
			t.Fatalf("status with %.40s: %+v", amount, d)
		}
		if q := d.object; q.Spec.Capability.Cpu().Value() != 4 || q.Status.Epoch != 3 || len(q.Status.Charged) != 1 || q.Status.Charged.Memory().Value() != 1<<30 {
			t.Fatalf("status with %.40s: %+v", amount, q)
		}
		if d := decodeJSON[*v1beta1.Queue](fmt.Appendf(nil, queue, amount, "4")); !d.there || d.err == nil || len(d.object.Spec.Capability) != 0 {
			t.Fatalf("spec with %.40s: %+v", amount, d)
		}
	}
	if took := time.Since(began); took > 20*time.Second {
		t.Fatalf("that took %v", took)
	}
}

func TestAbsurd(t *testing.T) {
	for text, want := range map[string]bool{
		`"1e9999"`: true, `"1E-9999"`: true, `{"a":"+1.5e99999"}`: true, `"` + strings.Repeat("1", 41) + `"`: true, `"` + strings.Repeat("1", 41) + `Ki"`: true, `{"name":"x","cpu":"1e99999"}`: true,
		`"1e999"`: false, `"1Gi"`: false, `"34e7e41912-1234"`: false, `1e99999`: false, `"1e99999`: false, `""`: false, `"`: false, ``: false, `"2026-01-01T00:00:00Z"`: false,
		`"e99999"`: false, `"123e45678-aaaa"`: false,
	} {
		if got := absurd([]byte(text)); got != want {
			t.Errorf("absurd(%s) = %v", text, got)
		}
	}
}

// protobufOf is a pod in protobuf whose numbered field is garbage.
func protobufOf(t *testing.T, broken byte) []byte {
	t.Helper()
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", ResourceVersion: "7"},
		Spec: v1.PodSpec{NodeName: "n"}, Status: v1.PodStatus{Phase: v1.PodSucceeded}}
	b, err := pod.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if broken == 0 {
		return b
	}
	return append(b, broken<<3|2, 2, 10, 200) // a string that is longer than the field
}

func TestDecodeProtobuf(t *testing.T) {
	for broken, want := range []string{"p on n, Succeeded", "nothing", "p unreadable", "p on n, "} {
		d := decodeProtobuf[*v1.Pod](protobufOf(t, byte(broken)))
		got := "nothing"
		if d.there && d.err != nil {
			got = d.object.Name + " unreadable"
		} else if d.there {
			got = fmt.Sprintf("%s on %s, %s", d.object.Name, d.object.Spec.NodeName, d.object.Status.Phase)
		}
		if got != want || d.there && (broken == 3) != (d.partly != nil) {
			t.Errorf("field %d: %q, want %q: %+v", broken, got, want, d)
		}
	}
	// A kind without spec and status has other fields there.
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "high"}, Value: 7}
	b, err := class.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if d := decodeProtobuf[*schedulingv1.PriorityClass](append(b, 4<<3|2, 200)); !d.there || d.err == nil || d.object.Name != "high" || d.object.Value != 0 {
		t.Errorf("a message that is cut off: %+v", d)
	}
	if d := decodeProtobuf[*schedulingv1.PriorityClass](append(b, 4<<3|0, 1)); !d.there || d.err == nil || d.object.Name != "high" || d.object.Value != 0 {
		t.Errorf("a field of the wrong type: %+v", d)
	}
}

// frame is a watch event as an API server sends it.
func frame(t *testing.T, kind watch.EventType, object []byte) []byte {
	t.Helper()
	unknown, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "X"}, Raw: object}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw := append([]byte("k8s\x00"), unknown...)
	var out bytes.Buffer
	to := protobuf.LengthDelimitedFramer.NewFrameWriter(&out)
	if err := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme).Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// A watch in protobuf goes on after what cannot be read, whatever its size. The last frame is cut off and says nothing.
func TestWatchOfFrames(t *testing.T) {
	status, err := (&metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonExpired, Code: 410}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	large, err := (&v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "large", Annotations: map[string]string{"a": strings.Repeat("x", 3<<20)}}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var in []byte
	in = append(in, frame(t, watch.Added, protobufOf(t, 0))...)
	in = append(in, frame(t, watch.Modified, protobufOf(t, 1))...)
	in = append(in, frame(t, watch.Modified, protobufOf(t, 2))...)
	in = append(in, frame(t, watch.Modified, protobufOf(t, 3))...)
	in = append(in, frame(t, watch.Deleted, protobufOf(t, 2))...)
	in = append(in, frame(t, watch.Added, large)...)
	in = append(in, frame(t, watch.Bookmark, protobufOf(t, 0))...)
	in = append(in, frame(t, watch.Error, status)...)
	cut := frame(t, watch.Added, protobufOf(t, 0))
	in = append(in, cut[:len(cut)-1]...)

	var log bytes.Buffer
	w := newEventStream(io.NopCloser(bytes.NewReader(in)), frames[*v1.Pod](newUnread("pods", slog.New(slog.NewTextHandler(&log, nil)))))
	defer w.Stop()
	var got []string
	for e := range w.ResultChan() {
		switch o := e.Object.(type) {
		case *v1.Pod:
			got = append(got, fmt.Sprint(e.Type, " ", o.Name, " ", o.Status.Phase))
		case *Unreadable:
			got = append(got, fmt.Sprint(e.Type, " unreadable ", o.GetObjectMeta().GetName()))
		case *metav1.Status:
			got = append(got, fmt.Sprint(e.Type, " ", o.Code))
		}
	}
	want := "ADDED p Succeeded, MODIFIED unreadable p, MODIFIED p , DELETED unreadable p, ADDED large , BOOKMARK p Succeeded, ERROR 410"
	if got := strings.Join(got, ", "); got != want {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if n := strings.Count(log.String(), "object=ns/p"); n != 1 { // all of one version
		t.Errorf("ns/p is named %d times in\n%s", n, log.String())
	}
}

// What is no frame of a watch is an error of the stream, and takes no memory.
func TestFramesThatAreNone(t *testing.T) {
	head := func(size uint32) []byte { return binary.BigEndian.AppendUint32(nil, size) }
	event := func(message ...byte) []byte { return append(head(uint32(len(message))), message...) }
	for what, in := range map[string][]byte{
		"too large":           head(maxFrame + 1),
		"the largest number":  head(1<<32 - 1),
		"no message":          event(0xff),
		"nothing":             event(),
		"without an object":   event(0x0a, 5, 'A', 'D', 'D', 'E', 'D'),
		"an object of others": event(0x0a, 5, 'A', 'D', 'D', 'E', 'D', 0x12, 6, 0x0a, 4, 'j', 's', 'o', 'n'),
		"of an unknown type":  event(0x0a, 1, 'X', 0x12, 10, 0x0a, 8, 'k', '8', 's', 0, 0x12, 2, 0x0a, 0),
		"no status":           event(0x0a, 5, 'E', 'R', 'R', 'O', 'R', 0x12, 9, 0x0a, 7, 'k', '8', 's', 0, 0x12, 1, 0xff),
	} {
		e, ok, err := frames[*v1.Pod](newUnread("pods", slog.New(slog.DiscardHandler)))(bufio.NewReader(bytes.NewReader(in)))
		if status, is := e.Object.(*metav1.Status); err != nil || !ok || e.Type != watch.Error || !is || status.Code != 500 {
			t.Errorf("%s: %+v, %t, %v", what, e, ok, err)
		}
	}
	// As large as one may be, and cut off.
	if e, ok, err := frames[*v1.Pod](newUnread("pods", slog.New(slog.DiscardHandler)))(bufio.NewReader(bytes.NewReader(head(maxFrame)))); err == nil || ok {
		t.Errorf("a frame that is cut off: %+v, %t, %v", e, ok, err)
	}
}

// A list in JSON is read to its end, whatever is in it, and is no list when it is cut off.
func TestReadJSONList(t *testing.T) {
	item := func(name, minCount string) string {
		return fmt.Sprintf(`{"metadata":{"namespace":"ns","name":%q,"uid":%q,"resourceVersion":"1"},"spec":{"schedulingPolicy":{"gang":{"minCount":%s}}}}`, name, name, minCount)
	}
	whole := `{"kind":"PodGroupList","items":[` + item("a", "1") + `,` + item("bad", "1e30") + `,7,` + item("b", "2") + `],"metadata":{"resourceVersion":"99"},"apiVersion":"x"}`
	read := func(in string) (string, string, error) {
		var got []string
		version, err := readJSONList(strings.NewReader(in), func(d decoded[*v1beta1.PodGroup]) {
			switch {
			case !d.there:
				got = append(got, "nothing")
			case d.err != nil:
				got = append(got, d.object.Name+" unreadable")
			default:
				got = append(got, d.object.Name)
			}
		})
		return strings.Join(got, ", "), version, err
	}
	if got, version, err := read(whole); got != "a, bad unreadable, nothing, b" || version != "99" || err != nil {
		t.Errorf("%q, version %q, %v", got, version, err)
	}
	for n := range whole {
		if _, _, err := read(whole[:n]); err == nil {
			t.Fatalf("of %d bytes of %d a list was read", n, len(whole))
		}
	}
	if got, version, err := read(`{"metadata":{"resourceVersion":"5"},"items":[]}`); got != "" || version != "5" || err != nil {
		t.Errorf("an empty list: %q, version %q, %v", got, version, err)
	}
	for what, in := range map[string]string{
		"only a part":   `{"metadata":{"continue":"x"},"items":[]}`,
		"there is none": `{"metadata":{}}`,
		"is expected":   `{"metadata":{},"items":{}}`,
	} {
		if _, _, err := read(in); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func FuzzDecodeJSON(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"q"},"spec":{"capability":{"cpu":"1"}},"status":{"epoch":1,"charged":{"cpu":"5..5"},"conditions":[{"lastTransitionTime":"` + badTime + `"}]}}`))
	f.Add([]byte(`{"metadata":{"name":"q"},"spec":{"capability":{"cpu":"99999999999999999999e9999"}},"status":[]}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		d := decodeJSON[*v1beta1.Queue](in)
		if d.there && d.err == nil {
			if _, err := json.Marshal(d.object); err != nil {
				t.Fatal(err)
			}
		}
	})
}

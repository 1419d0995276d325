package v1beta1

import (
	"encoding/json"
	"testing"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
)

// An object that can be read is copied and written the same again.
func FuzzObjects(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a.b"},"spec":{"capability":{"cpu":"4","memory":"1Gi"},"guarantee":{"cpu":1},"closed":true},"status":{"epoch":1,"writer":"w","sequence":2}}`))
	f.Add([]byte(`{"metadata":{"name":"g","namespace":"n"},"spec":{"queue":"a.b","priorityClassName":"p","scheduleTimeoutSeconds":5,"schedulingPolicy":{"gang":{"minCount":3}}},"status":{"pods":3}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 5000 {
			return
		}
		for _, make := range []func() runtime.Object{func() runtime.Object { return &Queue{} }, func() runtime.Object { return &PodGroup{} }} {
			o := make()
			if json.Unmarshal(b, o) != nil {
				continue
			}
			if !apiequality.Semantic.DeepEqual(o, o.DeepCopyObject()) {
				t.Fatalf("a copy differs: %+v", o)
			}
			out, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			again := make()
			if err := json.Unmarshal(out, again); err != nil {
				t.Fatalf("%s: %v", out, err)
			}
			if twice, err := json.Marshal(again); err != nil || string(twice) != string(out) {
				t.Fatalf("%s became %s, %v", out, twice, err)
			}
		}
	})
}

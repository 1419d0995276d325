package kube

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// encoded is a list as an API server sends it.
func encoded(t testing.TB, list runtime.Object) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func podList() *v1.PodList {
	l := &v1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, ListMeta: metav1.ListMeta{ResourceVersion: "123"}}
	for i := range 5 {
		l.Items = append(l.Items, v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("p", i), Labels: map[string]string{"a": strings.Repeat("b", 100*i)}},
			Spec:       v1.PodSpec{NodeName: "n", Containers: []v1.Container{{Name: "c"}}},
		})
	}
	return l
}

func TestReadList(t *testing.T) {
	want := podList()
	whole := encoded(t, want)
	read := func(in io.Reader) (pods []*v1.Pod, version string, err error) {
		version, err = readList(in, func(d decoded[*v1.Pod]) { pods = append(pods, d.object) })
		return pods, version, err
	}
	pods, version, err := read(bytes.NewReader(whole))
	if err != nil || version != "123" || len(pods) != len(want.Items) {
		t.Fatalf("%d pods, version %q, %v", len(pods), version, err)
	}
	for i := range pods {
		if !reflect.DeepEqual(*pods[i], want.Items[i]) {
			t.Errorf("pod %d is %+v", i, pods[i])
		}
	}
	for n := range whole { // cut off anywhere it is no list, or the same one: what follows it is of no interest
		if pods, version, err := read(bytes.NewReader(whole[:n])); err == nil && (version != "123" || len(pods) != len(want.Items)) {
			t.Fatalf("of %d bytes of %d: %d pods, version %q", n, len(whole), len(pods), version)
		}
	}
	part := podList()
	part.Continue = "more"
	for what, in := range map[string][]byte{
		"only a part":    encoded(t, part),
		"not Kubernetes": []byte(`{"kind":"PodList"}`),
		"there is none":  []byte("k8s\x00"),
	} {
		if _, _, err := read(bytes.NewReader(in)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if pods, version, err := read(bytes.NewReader(encoded(t, &v1.PodList{TypeMeta: want.TypeMeta, ListMeta: want.ListMeta}))); err != nil || len(pods) != 0 || version != "123" {
		t.Errorf("an empty list: %d pods, version %q, %v", len(pods), version, err)
	}
}

// Lists in protobuf that are not what they seem.
func TestReadListRefuses(t *testing.T) {
	const version = "\x0a\x05\x12\x03123" // ListMeta with the resourceVersion 123
	for _, c := range []struct{ what, list, err string }{
		{"as it should be", "\x12\x07" + version, ""},
		{"with numbers beside it", "\x18\x07\x12\x09" + version + "\x18\x07\x18\x07", ""},
		{"with a field that nobody knows", "\x12\x0a" + version + "\x1a\x01x", ""},
		{"of 32 bits", "\x1d1234\x12\x07" + version, "a field of wire type 5"},
		{"a field that is longer than the list", "\x12\x07\x0a\x06\x12\x03123x", "longer than what it is in"},
		{"a number that is longer than the list", "\x12\x08" + version + "\x18\x87\x01", "longer than what it is in"},
		{"a list that is longer than the answer", "\x12\x08" + version, "unexpected EOF"},
		{"a field of two terabytes", "\x12\x80\x80\x80\x80\x80\x40", "longer than what it is in"},
		{"a tag that is cut off", "\x12\x08" + version + "\x80", "unexpected EOF"},
		{"metadata that is none", "\x12\x04\x0a\x02\x12\x09", "EOF"},
	} {
		n := 0
		got, err := readList(strings.NewReader("k8s\x00"+c.list), func(decoded[*v1.Pod]) { n++ })
		if c.err == "" && (err != nil || got != "123" || n != 0) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: version %q, %d pods, %v, want %q", c.what, got, n, err, c.err)
		}
	}
}

// What is read of a real API server is what client-go reads.
func TestListStream(t *testing.T) {
	c := localtest.Shared(t)
	clients, err := ConnectConfig(c.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}
	core := clients.Core.CoreV1()
	for i := range 3 {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("listed-", i), Labels: map[string]string{"i": fmt.Sprint(i)}}}
		if _, err := core.Nodes().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = core.Nodes().Delete(context.Background(), n.Name, metav1.DeleteOptions{}) })
	}
	same(t, core.RESTClient(), "nodes", &v1.NodeList{})
	same(t, core.RESTClient(), "namespaces", &v1.NamespaceList{})
	same(t, core.RESTClient(), "persistentvolumes", &v1.PersistentVolumeList{})
	if _, err := listStream(t.Context(), core.RESTClient().Get().Resource("nonsense"), func(decoded[*v1.Node]) {}); err == nil {
		t.Error("a kind that does not exist was listed")
	}
}

func same(t *testing.T, client rest.Interface, resource string, want runtime.Object) {
	t.Helper()
	if err := client.Get().Resource(resource).Do(t.Context()).Into(want); err != nil {
		t.Fatal(err)
	}
	var err error
	var got, wanted []any
	switch l := want.(type) {
	case *v1.NodeList:
		_, err = listStream(t.Context(), client.Get().Resource(resource), func(d decoded[*v1.Node]) { got = append(got, *d.object) })
		for _, n := range l.Items {
			wanted = append(wanted, n)
		}
	case *v1.NamespaceList:
		_, err = listStream(t.Context(), client.Get().Resource(resource), func(d decoded[*v1.Namespace]) { got = append(got, *d.object) })
		for _, n := range l.Items {
			wanted = append(wanted, n)
		}
	case *v1.PersistentVolumeList:
		_, err = listStream(t.Context(), client.Get().Resource(resource), func(d decoded[*v1.PersistentVolume]) { got = append(got, *d.object) })
		for _, n := range l.Items {
			wanted = append(wanted, n)
		}
	}
	if err != nil || !reflect.DeepEqual(got, wanted) {
		t.Errorf("%s: %v\n%+v\nwant\n%+v", resource, err, got, wanted)
	}
}

func FuzzReadList(f *testing.F) {
	f.Add(encoded(f, podList()))
	f.Add([]byte("k8s\x00\x12\x04\x0a\x02\x12\x00"))
	f.Fuzz(func(t *testing.T, in []byte) {
		n := 0
		_, _ = readList(bytes.NewReader(in), func(decoded[*v1.Pod]) { n++ })
		if n > len(in) {
			t.Fatalf("%d pods in %d bytes", n, len(in))
		}
	})
}

package follow

import "k8s.io/apimachinery/pkg/runtime"

// decode reads an object. What it returns with an error has no status, or, where that is not what cannot be read,
// nothing but its metadata.
func decode[T any](object map[string]any) (*T, error) {
	o := new(T)
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, o)
	if err == nil {
		return o, nil
	}
	for _, parts := range [][]string{{"apiVersion", "kind", "metadata", "spec"}, {"apiVersion", "kind", "metadata"}} {
		rest := map[string]any{}
		for _, part := range parts {
			if v, there := object[part]; there {
				rest[part] = v
			}
		}
		o = new(T)
		if runtime.DefaultUnstructuredConverter.FromUnstructured(rest, o) == nil {
			break
		}
	}
	return o, err
}

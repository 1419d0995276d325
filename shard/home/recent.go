package home

// recent remembers the last few thousand keys.
type recent[K comparable, V any] struct {
	values map[K]V
	order  []K
}

const recentSize = 4096

func (r *recent[K, V]) put(key K, v V) {
	if r.values == nil {
		r.values = map[K]V{}
	}
	if _, known := r.values[key]; !known {
		if len(r.order) >= recentSize {
			delete(r.values, r.order[0])
			r.order = r.order[1:]
		}
		r.order = append(r.order, key)
	}
	r.values[key] = v
}

func (r *recent[K, V]) get(key K) (V, bool) {
	v, ok := r.values[key]
	return v, ok
}

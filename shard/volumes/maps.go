package volumes

func put[A, B comparable, V any](m map[A]map[B]V, a A, b B, v V) {
	if m[a] == nil {
		m[a] = map[B]V{}
	}
	m[a][b] = v
}

func remove[A, B comparable, V any](m map[A]map[B]V, a A, b B) {
	if delete(m[a], b); len(m[a]) == 0 {
		delete(m, a)
	}
}

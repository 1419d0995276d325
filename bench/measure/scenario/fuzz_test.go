package scenario

import "testing"

// A file is a scenario, or what is wrong with it is said.
func FuzzParse(f *testing.F) {
	for _, name := range Names() {
		b, err := files.ReadFile("files/" + name + ".yaml")
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Add([]byte("a: ["))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 5000 {
			return
		}
		s, err := Parse("fuzzed", b)
		if err == nil && s == nil || err != nil && err.Error() == "" {
			t.Fatalf("%v, %v", s, err)
		}
	})
}

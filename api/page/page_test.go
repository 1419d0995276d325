package page

import (
	"strings"
	"testing"
)

func TestFold(t *testing.T) {
	long := strings.Repeat("x", 253)
	for _, row := range []struct{ text, want string }{
		{"", ""},
		{"short\n", "short\n"},
		{"  next     one two three four five six seven eight\n",
			"  next     one two three four five six seven\n           eight\n"},
		{"a line of prose that goes on and on without columns\n",
			"a line of prose that goes on and on without\ncolumns\n"},
		{"NAME      N  words that do not fit into forty-four\n",
			"NAME      N  words that do not fit into\n             forty-four\n"},
		{"name-of-a-gang-with-many-letters  queue  why it waits\n",
			"name-of-a-gang-with-many-letters  queue  why\n        it waits\n"},
		{"  " + long + "  and words\n", "  " + long + "  \n          and words\n"},
		{"words " + long + " words\n", "words\n" + long + "\nwords\n"},
		{"  --flag string   ein Wörtchen über ähnliche Dinge\n",
			"  --flag string   ein Wörtchen über ähnliche\n          Dinge\n"},
	} {
		if got := Fold(row.text, 44); got != row.want {
			t.Errorf("%q became\n%q\nwant\n%q", row.text, got, row.want)
		}
	}
	if got := Prose("one\ntwo\n\n  an example\n  another\nthree"); got != "one two\n\n  an example\n  another\nthree" {
		t.Errorf("%q", got)
	}
}

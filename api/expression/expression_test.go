package expression

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

var (
	gangs = New(Variable{"labels", TextsType}, Variable{"annotations", TextsType}, Variable{"priority", IntType},
		Variable{"created", TimeType})
	nodes = New(Variable{"labels", TextsType}, Variable{"taints", ListType}, Variable{"allocatable", AmountsType})
)

// gang are values for gangs.
func gang() []Value {
	return []Value{
		Texts(map[string]string{"team": "vision", "n": "7", "big": "9223372036854775807",
			"example.com/deadline": "1700000000"}),
		Texts(map[string]string{"due": "2026-01-02T03:04:05Z", "long": strings.Repeat("x", MaxValue+1)}),
		Int(1000), Time(time.Unix(1600000000, 5e8))}
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{
		"priority":                                    1000,
		"int(labels.n) * 2":                           14,
		"int(labels['example.com/deadline'])":         1700000000,
		"int(labels.big)":                             math.MaxInt64,
		"-9223372036854775808":                        math.MinInt64,
		"int(timestamp(annotations.due))":             1767323045,
		"int(created)":                                1600000000,
		"created.getHours()":                          12,
		"'due' in annotations ? 1 : 2":                1,
		"has(labels.none) ? 1 : 2":                    2,
		"'long' in annotations ? 1 : 2":               2, // longer than MaxValue: absent
		"int(labels[?'none'].orValue('5'))":           5,
		"labels.?none.orValue('').size()":             0,
		"labels.exists(k, k.startsWith('e')) ? 1 : 2": 1,
		"labels.all(k, labels[k] != '') ? 1 : 2":      1,
		"labels.size()":                               4,
		"labels.team.matches('^v[a-z]+$') ? 1: 0":     1,
		"labels == labels && labels != annotations && labels == {'a': 'b'} ? 1 : 2":                                   2,
		"{'team':'vision','n':'7','big':'9223372036854775807','example.com/deadline':'1700000000'} == labels ? 1 : 2": 1,
		"type(labels) == map ? 1 : 2": 1,
	} {
		p, err := gangs.Compile(text, IntType)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if p.Text() != text {
			t.Errorf("%s became %s", text, p.Text())
		}
		if got, _, err := p.Int(gang()...); got != want || err != nil {
			t.Errorf("%s = %d, %v, want %d", text, got, err, want)
		}
	}
}

func TestBool(t *testing.T) {
	values := []Value{Texts(map[string]string{"zone": "a"}),
		List(Texts(map[string]string{"key": "gpu", "effect": "NoSchedule"}), Texts(map[string]string{"key": "x"})),
		Amounts(map[string]int64{"cpu": 64000, "nvidia.com/gpu": 8})}
	for text, want := range map[string]bool{
		"taints.exists(t, t.key == 'gpu' && t.effect == 'NoSchedule')": true,
		"taints.all(t, has(t.effect))":                                 false,
		"'nvidia.com/gpu' in allocatable":                              true,
		"allocatable['nvidia.com/gpu'] > 8":                            false,
		"allocatable.exists(r, allocatable[r] > 60000)":                true,
		"taints[0].key + labels.zone == 'gpua'":                        true,
	} {
		p, err := nodes.Compile(text, BoolType)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := p.Bool(values...); got != want || err != nil {
			t.Errorf("%s = %t, %v, want %t", text, got, err, want)
		}
	}
	if one, err := New(Variable{"b", BoolType}, Variable{"s", TextType}).Compile("b && s == ''", BoolType); err != nil {
		t.Error(err)
	} else if got, err := one.Bool(Bool(true), Text(strings.Repeat("x", MaxValue+1))); !got || err != nil {
		t.Errorf("a text that is too long: %t, %v", got, err)
	}
}

// Each error says in one line where and what.
func TestCompileErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "the expression is empty",
		" \n\t":                          "the expression is empty",
		strings.Repeat("1", MaxText+1):   "the expression has 1025 bytes, the limit is 1024",
		"1 +":                            "column 4: Syntax error: mismatched input '<EOF>' expecting ",
		"1 +\n label.x":                  "line 2, column 2: undeclared reference to 'label'",
		"priority + lable.x + 'a'":       "column 12: undeclared reference to 'lable'",
		"labels.team":                    "column 7: it is of type string, and has to be of type int",
		"true":                           "column 1: it is of type bool, and has to be of type int",
		"dyn(1)":                         "column 4: it is of type dyn, and has to be of type int",
		"created":                        "column 1: it is of type timestamp, and has to be of type int",
		"1.0":                            "column 1: it is of type double, and has to be of type int",
		"priority + 'a'":                 "column 10: found no matching overload for '_+_' applied to '(int, string)'",
		"9223372036854775808":            "column 1: invalid int literal",
		"labels.map(k, k).size()":        "column 11: undeclared reference to 'map'",
		"labels.filter(k, true).size()":  "column 14: undeclared reference to 'filter'",
		"created.getHours('Asia/Tokyo')": "column 17: found no matching overload for 'getHours' applied to ",
		"now()":                          "column 4: undeclared reference to 'now'",
		"labels.n.matches(labels.n)?1:2": "column 24: the pattern of matches has to be a literal",
		"matches('a', labels.n)?1:2":     "column 20: the pattern of matches has to be a literal",
		"labels.n.matches('(')?1:2":      "error parsing regexp: missing closing ): `(`",
		strings.Repeat("(", 40) + "1":    "expression recursion limit exceeded: 32",
		"labels.all(a, labels.all(b, labels.all(c, a==b && b==c)))?1:2": "it is too costly: it may cost ",
	} {
		p, err := gangs.Compile(text, IntType)
		if err == nil {
			t.Errorf("%q compiles: %v", text, p)
			continue
		}
		var e *Error
		if got := err.Error(); !strings.HasPrefix(got, want) || !isLine(got) || !errors.As(err, &e) {
			t.Errorf("%q: %s\nwant %s", text, got, want)
		}
	}
}

// isLine reports whether an error is one bounded line.
func isLine(s string) bool { return !strings.Contains(s, "\n") && len(s) <= maxWords+30 }

func TestEvaluationErrors(t *testing.T) {
	for text, want := range map[string]string{
		"int(labels.none)":                          "column 11: no such key: none",
		"int(labels['no'])":                         "column 11: no such key: no",
		"int(labels.team)":                          "column 4: type conversion error from 'string' to 'int'",
		"int(labels.big) + 1":                       "column 17: integer overflow",
		"priority / 0":                              "column 10: division by zero",
		"1 / (priority - priority)":                 "column 3: division by zero",
		"int(timestamp(labels.team))":               "column 14: ",
		"[1][5]":                                    "column 4: index out of bounds: 5",
		"labels.all(k, int(labels[k]) > 0) ? 1 : 2": "column 18: type conversion error from 'string' to 'int'",
	} {
		p, err := gangs.Compile(text, IntType)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, _, err := p.Int(gang()...); err == nil || !strings.HasPrefix(err.Error(), want) || got != 0 {
			t.Errorf("%s = %d, %v, want %s", text, got, err, want)
		}
	}
}

// What an evaluation costs is bounded whatever the values are, and so is what it sees of them.
func TestBounds(t *testing.T) {
	large := map[string]string{}
	for i := range 10000 {
		large[fmt.Sprintf("%05d", i)] = strings.Repeat("y", MaxValue)
	}
	values := []Value{Texts(large), Texts(large), Int(0), Time(time.Unix(0, 0))}
	p, err := gangs.Compile("labels.size()", IntType)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := p.Int(values...); got != MaxEntries || err != nil {
		t.Errorf("%d entries, %v, want %d", got, err, MaxEntries)
	}
	p, err = gangs.Compile("'00127' in labels && !('00128' in labels) ? 1 : 2", IntType)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := p.Int(values...); got != 1 || err != nil {
		t.Errorf("others than the first are seen: %d, %v", got, err)
	}
	long := "labels[?'x'].orValue(" + strings.Repeat("labels['00000']+", 12) + "'')" // longer than what is estimated
	p, err = gangs.Compile(long+".contains("+long+") ? 1 : 2", IntType)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := p.Int(values...); got != 0 || fmt.Sprint(err) != "it is too costly, the limit is 10000" {
		t.Errorf("%d, %v", got, err)
	}
	list := make([]Value, 1000)
	for i := range list {
		list[i] = Texts(nil)
	}
	q, err := nodes.Compile("taints.size() == 128", BoolType)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := q.Bool(Texts(nil), List(list...), Amounts(nil)); !got || err != nil {
		t.Errorf("a list of 1000: %t, %v", got, err)
	}
}

// The order in which keys are met decides what an error says: it is that of the keys.
func TestSameAnswerEachTime(t *testing.T) {
	many := map[string]string{}
	for i := range 100 {
		many[fmt.Sprint("k", i)] = fmt.Sprint("x", i)
	}
	p, err := gangs.Compile("labels.all(k, int(labels[k]) > 0) ? 1 : 2", IntType)
	if err != nil {
		t.Fatal(err)
	}
	words := map[string]bool{}
	for range 50 {
		_, _, err := p.Int(Texts(many), Texts(nil), Int(0), Time(time.Time{}))
		words[fmt.Sprint(err)] = true
	}
	if len(words) != 1 {
		t.Errorf("%d different answers: %v", len(words), words)
	}
}

// FuzzCompile: nothing that is written makes a panic, or an error of many lines.
func FuzzCompile(f *testing.F) {
	for _, s := range []string{"priority", "int(labels.n)", strings.Repeat("[", 500), strings.Repeat("-", 900) + "1",
		strings.Repeat("a.", 500), strings.Repeat("!", 1000), "\"\\u",
		"labels.all(k, labels.all(k, true))", "\x00\xff", "1?2:3?4:5", strings.Repeat("labels[", 100)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := gangs.Compile(s, IntType)
		if err != nil {
			if got := err.Error(); !isLine(got) {
				t.Errorf("%q: %q", s, got)
			}
			return
		}
		if _, _, err := p.Int(gang()...); err != nil && strings.Contains(err.Error(), "internal error") {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func BenchmarkInt(b *testing.B) {
	p, err := gangs.Compile("int(labels['example.com/deadline'])", IntType)
	if err != nil {
		b.Fatal(err)
	}
	values := gang()
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := p.Int(values...); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCostly is nearly as costly as an expression may be.
func BenchmarkCostly(b *testing.B) {
	large := map[string]string{}
	for i := range MaxEntries {
		large[fmt.Sprintf("%05d", i)] = strings.Repeat("y", MaxValue)
	}
	values := []Value{Texts(large), Texts(large), Int(0), Time(time.Unix(0, 0))}
	p, err := gangs.Compile("labels.all(k, labels[k] == annotations[k]) ? 1 : 2", IntType)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Int(values...)
	}
}

func BenchmarkCompile(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gangs.Compile("int(labels['example.com/deadline'])", IntType); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		New(Variable{"labels", TextsType})
	}
}

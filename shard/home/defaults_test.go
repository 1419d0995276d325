package home

import (
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The default of each field of Config is the one that its comment names.
func TestDefaults(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "config.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{}
	c.setDefaults()
	units := map[string]time.Duration{"ms": time.Millisecond, "s": time.Second, "min": time.Minute}
	documented := regexp.MustCompile(`^([0-9,]+)(?: (ms|s|min))?:`)
	found := 0
	ast.Inspect(file, func(n ast.Node) bool {
		of, is := n.(*ast.TypeSpec)
		if !is || of.Name.Name != "Config" {
			return true
		}
		for _, f := range of.Type.(*ast.StructType).Fields.List {
			m := documented.FindStringSubmatch(f.Comment.Text())
			if m == nil {
				continue
			}
			found++
			want, err := strconv.ParseInt(strings.ReplaceAll(m[1], ",", ""), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			if m[2] != "" {
				want *= int64(units[m[2]])
			}
			if got := reflect.ValueOf(c).FieldByName(f.Names[0].Name).Int(); got != want {
				t.Errorf("%s is %d, want %d", f.Names[0].Name, got, want)
			}
		}
		return false
	})
	if found < 30 {
		t.Errorf("%d fields name their default", found)
	}
}

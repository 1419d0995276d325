package v1beta1_test

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/v1beta1/applyconfiguration"
	apply "basalt.dev/basalt/api/v1beta1/applyconfiguration/api/v1beta1"
)

const again = "run go generate in api/generate"

// TestApplyConfigurations: what server-side apply sends is what the types say, no more and no less: each field by the
// same name and with the same value.
func TestApplyConfigurations(t *testing.T) {
	for _, c := range []struct{ object, made, empty any }{
		{queue, apply.Queue("a.b"), &apply.QueueApplyConfiguration{}},
		{podGroup, apply.PodGroup("a.b", "default"), &apply.PodGroupApplyConfiguration{}},
	} {
		want, err := json.Marshal(c.object)
		if err != nil {
			t.Fatal(err)
		}
		strict := json.NewDecoder(bytes.NewReader(want))
		strict.DisallowUnknownFields()
		if err := strict.Decode(c.empty); err != nil {
			t.Errorf("%T: %v: %s", c.object, err, again)
		}
		got, err := json.Marshal(c.empty)
		if err != nil {
			t.Fatal(err)
		}
		if a, b := values(t, want), values(t, got); !reflect.DeepEqual(a, b) {
			t.Errorf("the type has\n%s\nand what is applied has\n%s\n%s", want, got, again)
		}
		sameFields(t, reflect.TypeOf(c.object).Elem(), reflect.TypeOf(c.empty).Elem())

		// What a program begins with is of the kind that it should be.
		said, err := json.Marshal(c.made)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"apiVersion", "kind"} {
			if a, b := values(t, want)[field], values(t, said)[field]; a != b {
				t.Errorf("%T: %s is %v, not %v", c.made, field, b, a)
			}
		}
	}
}

func values(t *testing.T, text []byte) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// sameFields compares a type with its apply configuration, and looks for the function that sets each field.
func sameFields(t *testing.T, of, configuration reflect.Type) {
	t.Helper()
	want, got := fields(of), fields(configuration)
	for name, field := range got {
		typed, is := want[name]
		if !is {
			t.Errorf("%s.%s is in no type: %s", configuration.Name(), name, again)
			continue
		}
		if _, has := reflect.PointerTo(configuration).MethodByName("With" + field.Name); !has {
			t.Errorf("%s has no With%s: %s", configuration.Name(), field.Name, again)
		}
		a, b := bare(typed.Type), bare(field.Type)
		if a.PkgPath() == of.PkgPath() && a.Kind() == reflect.Struct {
			sameFields(t, a, b)
		}
	}
	for name := range want {
		if _, is := got[name]; !is {
			t.Errorf("%s.%s cannot be applied: %s", of.Name(), name, again)
		}
	}
}

// fields are those of a struct by their names in JSON, but for what Kubernetes has in all objects.
func fields(of reflect.Type) map[string]reflect.StructField {
	out := map[string]reflect.StructField{}
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if embedded := bare(f.Type); name == "" && embedded.PkgPath() == of.PkgPath() {
			for name, f := range fields(embedded) {
				out[name] = f
			}
		} else if name != "" && name != "metadata" {
			out[name] = f
		}
	}
	return out
}

// bare is what a pointer points to, or a list is of.
func bare(of reflect.Type) reflect.Type {
	for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
		of = of.Elem()
	}
	return of
}

// TestApplySchema: the fake client, and programs that extract what they own, know every field.
func TestApplySchema(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	typed := applyconfiguration.NewTypeConverter(scheme)
	for _, object := range []runtime.Object{queue, podGroup} {
		if _, err := typed.ObjectToTyped(object); err != nil {
			t.Errorf("%T: %v: %s", object, err, again)
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		content["spec"].(map[string]any)["misspelt"] = "x"
		if _, err := typed.ObjectToTyped(&unstructured.Unstructured{Object: content}); err == nil {
			t.Errorf("%T: the schema takes any field", object)
		}
	}
}

// TestAppliedAreDocumented: a programmer reads in the editor what the types say.
func TestAppliedAreDocumented(t *testing.T) {
	types, applied := comments(t, "."), comments(t, "applyconfiguration/api/v1beta1")
	if len(types) < 20 {
		t.Errorf("only %d fields have comments", len(types))
	}
	for field, says := range types {
		kind, name, _ := strings.Cut(field, ".")
		if got := applied[kind+"ApplyConfiguration."+name]; strings.Join(strings.Fields(got), " ") != says {
			t.Errorf("of %s the type says\n%s\nand the apply configuration\n%s\n%s", field, says, got, again)
		}
	}
}

// comments returns the comments of the fields of all types of a package, without directives and line breaks.
func comments(t *testing.T, dir string) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, file := range files {
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			spec, is := n.(*ast.TypeSpec)
			if !is {
				return true
			}
			if body, is := spec.Type.(*ast.StructType); is {
				for _, f := range body.Fields.List {
					var lines []string
					for line := range strings.SplitSeq(f.Doc.Text(), "\n") {
						if !strings.HasPrefix(line, "+") {
							lines = append(lines, strings.Fields(line)...)
						}
					}
					for _, name := range f.Names {
						if len(lines) > 0 {
							out[spec.Name.Name+"."+name.Name] = strings.Join(lines, " ")
						}
					}
				}
			}
			return false
		})
	}
	return out
}

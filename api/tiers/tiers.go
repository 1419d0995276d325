// Package tiers compiles nodeTiers of the configuration: classes of pods, and for each of them the tiers of nodes
// (api.TierRules).
//
// It decides of which class a pod is, and in which tier of each class a node is, by expressions over what they say of
// themselves: so each process with the same configuration finds the same. It refuses a configuration that it cannot
// compile as a whole. What compiles may still fail for some object, as for a node without the label that is looked
// up. Such a node is in the last tier of the class, such a pod is not of the class, and the caller is told.
//
// It has no state, and everything may be called by several goroutines.
package tiers

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/expression"
)

// MaxClasses bounds the classes.
const MaxClasses = 4

// Class is an element of nodeTiers. Of the classes whose Pods matches a pod, the first is the pod's.
type Class struct {
	// Name is what shards call the class among themselves.
	Name string `json:"name"`
	// Pods says which pods are of the class: an expression (CEL) that is true or false, over labels, requests,
	// namespaceName and priority.
	Pods string `json:"pods"`
	// Nodes says in which tier a node is for them, an expression over labels, taints and allocatable: from 0, the
	// best, to 3.
	Nodes string `json:"nodes"`
}

// Of what an expression is.
const (
	OfPod  = "pod"
	OfNode = "node"
)

// Failure is an expression that could not be evaluated for an object.
type Failure struct {
	Class, Of string
	Object    string // the node, or the pod's namespace and name
	Err       error
}

var (
	ofPods = []expression.Variable{
		{Name: "labels", Type: expression.TextsType}, {Name: "requests", Type: expression.AmountsType},
		{Name: "namespaceName", Type: expression.TextType}, {Name: "priority", Type: expression.IntType},
	}
	ofNodes = []expression.Variable{
		{Name: "labels", Type: expression.TextsType}, {Name: "taints", Type: expression.ListType},
		{Name: "allocatable", Type: expression.AmountsType},
	}
)

// class is one that is compiled.
type class struct {
	name        string
	pods, nodes *expression.Program
}

// Check returns an error for each thing that is wrong with some classes. Each names the field below field, and the
// place in the expression.
func Check(field string, of []Class) []error {
	_, out := compile(field, of)
	return out
}

// Compile returns the rules of some classes, nil if there are none. failed, which may be nil, is told of what could
// not be evaluated.
func Compile(of []Class, failed func(Failure)) (*api.TierRules, error) {
	if len(of) == 0 {
		return nil, nil
	}
	classes, wrong := compile("nodeTiers", of)
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	form, err := json.Marshal(of)
	if err != nil {
		return nil, err
	}
	if failed == nil {
		failed = func(Failure) {}
	}
	r := &rules{classes, failed}
	return &api.TierRules{Form: string(form), OfPod: r.classOf, OfNode: r.tiersOf}, nil
}

func compile(field string, of []Class) (out []class, wrong []error) {
	if len(of) == 0 {
		return nil, nil
	}
	refuse := func(i int, format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("%s[%d].%s", field, i, fmt.Sprintf(format, args...)))
	}
	if len(of) > MaxClasses {
		wrong = append(wrong, fmt.Errorf("%s has %d classes: at most %d", field, len(of), MaxClasses))
		of = of[:MaxClasses]
	}
	pods, nodes := expression.New(ofPods...), expression.New(ofNodes...)
	for i, c := range of {
		switch {
		case len(validation.IsDNS1123Label(c.Name)) > 0:
			refuse(i, "name is %q: lower-case letters, digits and inner dashes, at most 63", api.Shorten(c.Name, 64))
		case slices.IndexFunc(of, func(o Class) bool { return o.Name == c.Name }) < i:
			refuse(i, "name is %q, which is there before", c.Name)
		}
		var err error
		made := class{name: c.Name}
		if made.pods, err = pods.Compile(c.Pods, expression.BoolType); err != nil {
			refuse(i, "pods: %s%s%s", err, meant(err, ofPods), quoted(c.Pods))
		}
		if made.nodes, err = nodes.Compile(c.Nodes, expression.IntType); err != nil {
			refuse(i, "nodes: %s%s%s", err, meant(err, ofNodes), quoted(c.Nodes))
		}
		out = append(out, made)
	}
	return out, wrong
}

// maxQuoted bounds the text of an expression in an error, in bytes.
const maxQuoted = 256

func quoted(text string) string {
	if strings.TrimSpace(text) == "" {
		return ""
	}
	return fmt.Sprintf(", in %q", api.Shorten(text, maxQuoted))
}

// meant names the variable that is meant by one that there is not, "" for none.
func meant(err error, variables []expression.Variable) string {
	_, after, is := strings.Cut(err.Error(), "undeclared reference to '")
	name, _, _ := strings.Cut(after, "'")
	if !is {
		return ""
	}
	var names []string
	for _, v := range variables {
		names = append(names, v.Name)
	}
	if near := api.Nearest(name, names); near != "" {
		return "; did you mean " + near + "?"
	}
	return "; there are " + strings.Join(names, ", ")
}

// rules are what api.TierRules calls.
type rules struct {
	classes []class
	failed  func(Failure)
}

func (r *rules) classOf(p *api.Pod, labels map[string]string, requests api.Resources) string {
	values := []expression.Value{
		expression.Texts(labels), amounts(requests), expression.Text(p.Namespace), expression.Int(p.Priority),
	}
	for i := range r.classes {
		c := &r.classes[i]
		is, err := c.pods.Bool(values...)
		if err != nil {
			r.failed(Failure{c.name, OfPod, p.Namespace + "/" + p.Name, err})
		}
		if is {
			return c.name
		}
	}
	return ""
}

func (r *rules) tiersOf(n *api.Node) api.Tiers {
	var taints []expression.Value
	for i := range n.Taints {
		t := &n.Taints[i]
		words := map[string]string{"key": t.Key, "value": t.Value, "effect": string(t.Effect)}
		taints = append(taints, expression.Texts(words))
	}
	values := []expression.Value{expression.Texts(n.Labels), expression.List(taints...), amounts(n.Allocatable)}
	out := make(api.Tiers, len(r.classes))
	for i := range r.classes {
		c := &r.classes[i]
		tier, _, err := c.nodes.Int(values...)
		if err == nil && (tier < 0 || tier > api.LastTier) {
			err = fmt.Errorf("it is %d: a tier is 0 to %d", tier, api.LastTier)
		}
		if err != nil {
			r.failed(Failure{c.name, OfNode, n.Name, err})
			tier = api.LastTier
		}
		out[i] = api.Tier{Class: c.name, Tier: uint8(tier)}
	}
	return out
}

// amounts are without those that count pods: each pod has one of these.
func amounts(r api.Resources) expression.Value {
	of := make(map[string]int64, len(r))
	for _, a := range r {
		if !api.IsCount(a.Resource) {
			of[a.Resource] = a.Value
		}
	}
	return expression.Amounts(of)
}

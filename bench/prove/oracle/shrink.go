package main

import (
	"encoding/json"
	"reflect"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// shrunkFinding is a finding with a small case that shows the same mismatch.
type shrunkFinding struct {
	finding
	shrunk *Case
}

// smallest shrinks the first few findings and returns those that look different, the smallest first.
func smallest(found []finding, show int) []shrunkFinding {
	var out []shrunkFinding
	seen := map[string]bool{}
	slices.SortFunc(found, func(a, b finding) int { return int(a.seed) - int(b.seed) })
	for _, f := range found[:min(len(found), 6*show)] {
		c := Shrink(Generate(f.seed), f.mismatch)
		v, _ := Compare(c)
		for _, m := range v.Mismatches {
			if m.Kind == f.mismatch.Kind && m.Plugin == f.mismatch.Plugin {
				f.mismatch = m
				break
			}
		}
		if key := f.mismatch.Reason; !seen[key] {
			seen[key] = true
			out = append(out, shrunkFinding{f, c})
		}
	}
	slices.SortStableFunc(out, func(a, b shrunkFinding) int { return len(a.shrunk.YAML()) - len(b.shrunk.YAML()) })
	return out[:min(len(out), show)]
}

// Shrink returns a case as small as it gets in which the same plugin refuses or lacks a node: first it leaves out whole objects, then
// fields and elements of lists.
func Shrink(c *Case, m Mismatch) *Case {
	still := func(c *Case) (yes bool) {
		defer func() {
			if recover() != nil {
				yes = false
			}
		}()
		v, err := Compare(c)
		return err == nil && slices.ContainsFunc(v.Mismatches, func(o Mismatch) bool { return o.Kind == m.Kind && o.Plugin == m.Plugin })
	}
	if !still(c) {
		return c
	}
	for changed := true; changed; {
		changed = false
		c, changed = dropObjects(c, still)
		for i := range c.all() {
			var smaller bool
			if c, smaller = dropFields(c, i, still); smaller {
				changed = true
			}
		}
	}
	return c
}

// dropObjects leaves out as many objects as it can, first halves of a list, then smaller parts.
func dropObjects(c *Case, still func(*Case) bool) (*Case, bool) {
	changed := false
	for _, list := range []struct {
		size func(*Case) int
		drop func(c *Case, i, j int)
	}{
		{func(c *Case) int { return len(c.Pods) }, func(c *Case, i, j int) { c.Pods = slices.Delete(c.Pods, i, j) }},
		{func(c *Case) int { return len(c.Nodes) }, func(c *Case, i, j int) { c.Nodes = slices.Delete(c.Nodes, i, j) }},
		{func(c *Case) int { return len(c.Objects) }, func(c *Case, i, j int) { c.Objects = slices.Delete(c.Objects, i, j) }},
	} {
		for step := max(1, list.size(c)/2); step > 0; step /= 2 {
			for i := 0; i+step <= list.size(c); {
				smaller := c.clone()
				list.drop(smaller, i, i+step)
				if still(smaller) {
					c, changed = smaller, true
				} else {
					i += step
				}
			}
		}
	}
	return c, changed
}

// needed are keys that valid objects have; they stay.
var needed = []string{"metadata", "name", "namespace", "uid", "operator", "topologyKey", "whenUnsatisfiable", "maxSkew", "containerPort", "containers", "driver", "volumeHandle",
	"provisioner", "effect", "labelSelectorTerms", "nodeSelectorTerms", "type", "status", "allocatable", "pods", "apiVersion", "kind", "spec", "exitCodes", "action", "storage", "attacher",
	"source", "accessModes", "resources", "capacity", "path", "server", "claimName", "nodeName", "key", "phase", "volumeClaimTemplate", "nodeID", "mountPath", "image", "restartPolicy"}

// dropFields leaves out fields of the i-th object of a case.
func dropFields(c *Case, i int, still func(*Case) bool) (*Case, bool) {
	changed := false
	for {
		o := c.all()[i]
		tree := map[string]any{}
		if b, err := json.Marshal(o); err != nil || json.Unmarshal(b, &tree) != nil {
			return c, changed
		}
		again := false
		cuts(tree, func() bool {
			smaller := reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object)
			if b, err := json.Marshal(tree); err != nil || json.Unmarshal(b, smaller) != nil {
				return false
			}
			candidate := c.with(i, smaller)
			before, _ := json.Marshal(o)
			if after, _ := json.Marshal(smaller); string(before) == string(after) || !still(candidate) {
				return false
			}
			c, changed, again = candidate, true, true
			return true
		})
		if !again {
			return c, changed
		}
	}
}

// cuts leaves out one part of a tree after another, and puts it back unless try says that it may go.
func cuts(tree any, try func() bool) any {
	switch tree := tree.(type) {
	case map[string]any:
		for _, key := range sortedKeys(tree) {
			value := tree[key]
			if !slices.Contains(needed, key) {
				delete(tree, key)
				if try() {
					continue
				}
				tree[key] = value
			}
			if list, is := value.([]any); is {
				for i := len(list) - 1; i >= 0; i-- {
					shorter := slices.Delete(slices.Clone(list), i, i+1)
					if len(shorter) == 0 && slices.Contains(needed, key) {
						continue
					}
					tree[key] = shorter
					if try() {
						list = shorter
					}
					tree[key] = list
				}
				for _, element := range list {
					cuts(element, try)
				}
				continue
			}
			cuts(value, try)
		}
	}
	return tree
}

// with returns the case with another i-th object.
func (c *Case) with(i int, o runtime.Object) *Case {
	out := c.clone()
	switch n, k := len(c.Nodes), len(c.Nodes)+len(c.Objects); {
	case i < n:
		out.Nodes[i] = o.(*v1.Node)
	case i < k:
		out.Objects[i-n] = o
	case i < k+len(c.Pods):
		out.Pods[i-k] = o.(*v1.Pod)
	default:
		out.Pod = o.(*v1.Pod)
	}
	return out
}

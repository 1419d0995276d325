package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/core/install"     // defaults of core/v1
	_ "k8s.io/kubernetes/pkg/apis/resource/install" // and of the other groups
	_ "k8s.io/kubernetes/pkg/apis/storage/install"
	"sigs.k8s.io/yaml"
)

// Case is a cluster and one pod that waits in it.
type Case struct {
	Pod     *v1.Pod
	Nodes   []*v1.Node
	Pods    []*v1.Pod        // other pods: bound ones, and nominated ones
	Objects []runtime.Object // everything else: volumes, claims, classes, namespaces
}

// clone copies the lists of a case, so that one may drop elements, but not the objects.
func (c *Case) clone() *Case {
	return &Case{Pod: c.Pod, Nodes: slices.Clone(c.Nodes), Pods: slices.Clone(c.Pods), Objects: slices.Clone(c.Objects)}
}

// all returns every object of a case.
func (c *Case) all() []runtime.Object {
	out := []runtime.Object{}
	for _, n := range c.Nodes {
		out = append(out, n)
	}
	out = append(out, c.Objects...)
	for _, p := range c.Pods {
		out = append(out, p)
	}
	return append(out, c.Pod)
}

// complete gives all objects the defaults of the API server: no scheduler sees an object without them.
func (c *Case) complete() *Case {
	for _, o := range c.all() {
		legacyscheme.Scheme.Default(o)
	}
	return c
}

// nodeNames returns the names of the nodes of a case.
func (c *Case) nodeNames() []string {
	var out []string
	for _, n := range c.Nodes {
		out = append(out, n.Name)
	}
	return out
}

// YAML is a case as the API server would show it; the pod that is asked about comes last.
func (c *Case) YAML() string {
	var out bytes.Buffer
	for _, o := range c.all() {
		o = o.DeepCopyObject()
		if kinds, _, err := scheme.Scheme.ObjectKinds(o); err == nil {
			o.GetObjectKind().SetGroupVersionKind(kinds[0])
		}
		b, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Sprintf("cannot write the case: %v", err)
		}
		fmt.Fprintf(&out, "---\n%s", dropDefaults(string(b)))
	}
	return out.String()
}

// dropDefaults leaves out lines that every object has and that say nothing.
func dropDefaults(text string) string {
	noise := []string{"status: {}", "creationTimestamp: null", "resources: {}", "terminationMessagePath:", "terminationMessagePolicy:",
		"imagePullPolicy:", "dnsPolicy:", "schedulerName: default-scheduler", "securityContext: {}", "terminationGracePeriodSeconds:",
		"enableServiceLinks:", "image: i", "restartPolicy: Always # of the pod"}
	lines := strings.Split(text, "\n")
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool {
		trimmed := strings.TrimSpace(line)
		return slices.ContainsFunc(noise, func(n string) bool { return strings.HasPrefix(trimmed, n) })
	}), "\n")
}

// nameOf is how an object is called in reports.
func nameOf(o runtime.Object) string {
	m, err := meta.Accessor(o)
	if err != nil {
		return "?"
	}
	return m.GetName()
}

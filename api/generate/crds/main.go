// Command crds completes the CRDs that controller-gen has written into a folder with what its markers cannot say:
//
//   - every quantity is at most 32 characters long, and every map of quantities has at most 64 entries. Without that the
//     API server estimates the cost of a rule for values of 3 MB and refuses the CRD;
//   - the rules for a Queue's spec.capability, spec.guarantee and spec.deserved, and for a PodGroup's
//     spec.minResources, made here of a few named pieces, and those for durations.
//
// The rules look at a value as text first. Kubernetes takes 1e2000000000 for a quantity, and to compare it with anything
// takes a process minutes and gigabytes: no rule may parse a value whose exponent has more than two digits.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const (
	quantityLength = 32 // characters; 2^60 with nine decimals has 29
	resourceNames  = 64 // in one list
)

// Pieces of rules, in CEL, about the resource named r in the list named self. All are regular expressions in RE2 syntax.
const (
	text = `string(self[r])`
	// A quantity that may be parsed.
	plain = text + `.matches('^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$')`
	// In millicores: thousandths with any suffix that multiplies by a whole number, or whole milli-units.
	wholeMillis = text + `.matches('^[+-]?([0-9]+m|[0-9]*[.]?[0-9]{0,3}0*([kMGTPE]|[KMGTPE]i|[eE][+]?[0-9]{1,2})?)$')`
	// In units: a whole number with any such suffix, thousandths of a decimal one, eighths of a binary one.
	wholeUnits = text + `.matches('^[+-]?([0-9]+[.]?0*([kMGTPE]|[KMGTPE]i|[eE][+]?[0-9]{1,2})?|[0-9]*[.][0-9]{0,3}0*[kMGTPE]|[0-9]*[.](5|25|75|125|375|625|875)0*[KMGTPE]i)$')`
	pair       = `'%s: %s'.format([r, self[r]])`
	amount     = `quantity(` + text + `)`
	most       = `quantity(r == 'cpu' ? '1G' : '1Ei')`
	inBytes    = `(r in ['memory', 'ephemeral-storage'] || r.startsWith('hugepages-'))`
	knownName  = `(r in ['cpu', 'memory', 'ephemeral-storage', 'pods'] || r.matches('^hugepages-[0-9]+([KMGTPE]i)?$') || r.matches('^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$'))`
)

// every makes the rule that each entry of a list of resources must satisfy good. The message has one verb, for what is not.
// It is made by format because the API server takes the size of any other string made from a key for unbounded, and its
// cost with it. When a message grows too long (5,120 characters), the API server falls back to the one without names.
func every(good, entry, message string) apiextensions.ValidationRule {
	return apiextensions.ValidationRule{
		Rule:              "self.all(r, " + good + ")",
		Message:           strings.Replace(message, "%s", "an entry", 1),
		MessageExpression: "'" + message + "'.format([self.filter(r, !(" + good + ")).map(r, " + entry + ")])",
	}
}

// limits are the rules for a list of amounts that may be held or are kept free.
var limits = apiextensions.ValidationRules{
	every(knownName, "r",
		"%s cannot be limited: use cpu, memory, ephemeral-storage, pods, hugepages-SIZE or an extended resource such as example.com/gpu"),
	every(plain, pair,
		"%s is no amount: write a number such as 2, 1500m or 4Gi"),
	every("!"+plain+" || !"+amount+".isLessThan(quantity('0'))", pair,
		"%s is negative: write 0 to allow none of a resource, leave it out to not limit it"),
	every("!"+plain+" || !"+amount+".isGreaterThan("+most+")", pair,
		"%s is above what is accepted: 1G cores, 1Ei bytes, 1Ei (2^60) of anything else"),
	every("!"+plain+" || r != 'cpu' || "+wholeMillis, pair,
		"%s is not in whole millicores: write 1500m or 1.5"),
	every("!"+plain+" || r == 'cpu' || !"+inBytes+" || "+wholeUnits, pair,
		"%s is not in whole bytes: write 1536Mi or 1.5Gi"),
	every("!"+plain+" || r == 'cpu' || "+inBytes+" || "+wholeUnits, pair,
		"%s is not a whole number"),
}

// covered is the rule that no amount of a list is above that of another, where both name it.
func covered(low, high string) apiextensions.ValidationRule {
	const exponent = `.matches('[eE][+-]?[0-9]{3}')`
	l, h := "self."+low, "self."+high
	a, b := "string("+l+"[r])", "string("+h+"[r])"
	above := `r in ` + h + ` && !` + a + exponent + ` && !` + b + exponent +
		` && isQuantity(` + a + `) && isQuantity(` + b + `) && quantity(` + a + `).isGreaterThan(quantity(` + b + `))`
	return apiextensions.ValidationRule{
		Rule:              "!has(" + l + ") || !has(" + h + ") || !" + l + ".exists(r, " + above + ")",
		Message:           "an entry is above spec." + high,
		MessageExpression: "'%s is above spec." + high + "'.format([" + l + ".filter(r, " + above + ").map(r, '%s: %s'.format([r, " + l + "[r]]))])",
		FieldPath:         "." + low,
	}
}

// setDurations gives the durations of a spec their rules.
func setDurations(spec apiextensions.JSONSchemaProps, least string) {
	const week, year = "168h", "8760h"
	for _, d := range []struct{ name, least, most string }{
		{"reclaimMinRuntime", least, week}, {"preemptMinRuntime", least, week}, {"preemptionDelay", least, week},
		{"repairFor", least, week}, {"staleAfter", least, week}, {"maxRuntime", "1s", year}, {"defaultRuntime", "1s", year},
	} {
		setDuration(spec, d.name, d.least, d.most)
	}
}

// setDuration gives one of them its rules, if the spec has it; least is "" for 0.
func setDuration(spec apiextensions.JSONSchemaProps, name, least, most string) {
	const text, value = `self.matches('^([0-9]{1,6}([.][0-9]{1,9})?(ms|s|m|h))+$')`, `duration(self)`
	within, message := value+` <= duration('`+most+`')`, "must be at most "+most
	if least != "" {
		within, message = value+` >= duration('`+least+`') && `+within, "must be from "+least+" to "+most
	}
	n := int64(quantityLength)
	if d, has := spec.Properties[name]; has {
		d.MaxLength, d.XValidations = &n, apiextensions.ValidationRules{
			{Rule: text, Message: "must be a duration such as 30s, 10m or 1h30m, and not negative"},
			{Rule: "!" + text + " || " + within, Message: message},
		}
		spec.Properties[name] = d
	}
}

// userResources is how many resources an entry of spec.userLimits names at most: there may be 64 entries, and what all
// rules may cost together is bounded.
const userResources = 8

// setUserLimits gives what users may be charged the rules of a capability.
func setUserLimits(spec apiextensions.JSONSchemaProps) {
	entry := spec.Properties["userLimits"].Items.Schema
	list, n := entry.Properties["capability"], int64(userResources)
	list.MaxProperties, list.XValidations = &n, limits
	entry.Properties["capability"] = list
}

// fixed is the rule that a field of a PodGroup's spec never changes.
func fixed(name string) apiextensions.ValidationRule {
	return apiextensions.ValidationRule{
		Rule:      strings.ReplaceAll("has(self.F) == has(oldSelf.F) && (!has(self.F) || self.F == oldSelf.F)", "F", name),
		Message:   "spec." + name + " cannot change: only minCount, maxRuntimeSeconds and gates can",
		FieldPath: "." + name,
	}
}

// onlyRemoved is the rule that gates of a PodGroup are only removed.
var onlyRemoved = apiextensions.ValidationRule{
	Rule: "!has(self.gates) || self.gates.size() == 0 || " +
		"has(oldSelf.gates) && self.gates.all(g, g in oldSelf.gates)",
	Message:   "none can be added, now that the PodGroup exists: gates can only be removed",
	FieldPath: ".gates",
}

// gate is the rule for the name of a gate.
var gate = apiextensions.ValidationRule{
	Rule: "self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/" +
		"[A-Za-z0-9]([-._A-Za-z0-9]*[A-Za-z0-9])?$')",
	Message: "must be a domain, a slash and a name, such as finance.example.com/budget",
}

// printable is the rule for an expression. Whether it compiles is known to whoever evaluates it.
var printable = apiextensions.ValidationRule{
	Rule:    `self.matches('^[\\t\\n\\r -~]*[!-~][\\t\\n\\r -~]*$')`,
	Message: `must be an expression in CEL, in printable ASCII: write other characters as "\u00e9"`,
}

// bound limits the size of every quantity below a schema, and of every map of quantities.
func bound(s *apiextensions.JSONSchemaProps) {
	if s.XIntOrString {
		n := int64(quantityLength)
		s.MaxLength = &n
		s.Pattern, s.AnyOf = "", nil // the rules say what is wrong in words; anyOf says it four times
	}
	for name, p := range s.Properties {
		bound(&p)
		s.Properties[name] = p
	}
	if s.Items != nil && s.Items.Schema != nil {
		bound(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		n := int64(resourceNames)
		s.MaxProperties = &n
		bound(s.AdditionalProperties.Schema)
	}
}

func complete(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	crd := struct {
		APIVersion string                                     `json:"apiVersion"`
		Kind       string                                     `json:"kind"`
		Metadata   map[string]any                             `json:"metadata"`
		Spec       apiextensions.CustomResourceDefinitionSpec `json:"spec"`
	}{} // the library's own type would write a status
	if err := yaml.UnmarshalStrict(b, &crd); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	for _, v := range crd.Spec.Versions {
		bound(v.Schema.OpenAPIV3Schema)
		spec := v.Schema.OpenAPIV3Schema.Properties["spec"]
		for _, name := range []string{"capability", "guarantee", "deserved", "minResources"} {
			if list, has := spec.Properties[name]; has {
				list.XValidations = limits
				spec.Properties[name] = list
			}
		}
		if crd.Spec.Names.Kind != "Queue" {
			setDurations(spec, "1s")
			for _, name := range []string{
				"queue", "schedulingConstraints", "priorityClassName", "scheduleTimeoutSeconds", "disruptionMode",
				"preemptible", "minResources", "staleAfter",
			} {
				spec.XValidations = append(spec.XValidations, fixed(name))
			}
			spec.XValidations = append(spec.XValidations, onlyRemoved)
			spec.Properties["gates"].Items.Schema.XValidations = apiextensions.ValidationRules{gate}
			v.Schema.OpenAPIV3Schema.Properties["spec"] = spec
			continue
		}
		setDurations(spec, "")
		setUserLimits(spec)
		order := spec.Properties["order"]
		order.XValidations = apiextensions.ValidationRules{printable}
		spec.Properties["order"] = order
		spec.XValidations = append(spec.XValidations, covered("guarantee", "capability"), covered("guarantee", "deserved"), covered("deserved", "capability"))
		v.Schema.OpenAPIV3Schema.Properties["spec"] = spec
	}
	if b, err = yaml.Marshal(crd); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.WriteFile(path, append([]byte("# Made by `go generate` in api/generate from api/v1beta1. Do not edit.\n"), b...), 0o644)
}

func main() {
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "scheduling.basalt.dev_*.yaml"))
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("no CRD in %s", os.Args[1])
	}
	for _, path := range paths {
		if err == nil {
			err = complete(path)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crds:", err)
		os.Exit(1)
	}
}

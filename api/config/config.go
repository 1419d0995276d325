// Package config reads the configuration file of shards and coordinators: one file for all processes of an installation, with what they
// decide by. What differs from process to process, such as names, addresses and key files, is said by flags. A flag that is given wins
// over the file.
//
// The file is versioned and strict: a field that does not exist, a value of another type, and a value that means nothing are refused, with
// the path of the field and the nearest name that exists. It is read again every few seconds (Follow). What may change while a process runs
// takes effect then, and of everything else that has changed the log says that it takes effect at the next start. A file that has become
// invalid changes nothing, and the log says why.
package config

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/tiers"
)

// What a file begins with.
const (
	APIVersion = "config.basalt.dev/v1alpha1"
	Kind       = "Configuration"
)

const (
	maxFile   = 1 << 20 // bounds a file, in bytes
	maxLevels = 16      // bounds TopologyLevels
	maxShown  = 64      // bounds a wrong value in an error, in bytes
)

// Configuration is what a file says. Default has the values of what it does not say.
type Configuration struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// Log is about the logs of all processes.
	Log Log `json:"log"`
	// OTLP is the gRPC endpoint that traces are sent to; empty for none.
	OTLP string `json:"otlp"`
	// Volcano says what becomes of Volcano's objects: off, observe or write.
	Volcano Mode `json:"volcano"`
	// SchedulerNames are the names in spec.schedulerName of the pods that Basalt places.
	SchedulerNames []string `json:"schedulerNames"`
	// Placement is pack (fill nodes), spread (use nodes evenly), least-allocated or most-allocated (by cpu and memory, as kube-scheduler does).
	Placement string `json:"placement"`
	// ImageLocality has pods prefer nodes that have their images already.
	ImageLocality bool `json:"imageLocality"`
	// IgnoredResources count neither for placement nor for quota.
	IgnoredResources []string `json:"ignoredResources"`
	// TopologyLevels are labels of nodes from the largest kind of topology domain to the smallest, such as zone, block, rack. A gang that prefers
	// one is tried in the larger ones, too, and tiers of Volcano's networkTopology are numbers of them, from the smallest up.
	TopologyLevels []string `json:"topologyLevels"`
	// NodeTiers puts nodes into four tiers for some classes of pods, which go to the best one that has room.
	NodeTiers []tiers.Class `json:"nodeTiers"`
	// PodEvents has an event written on each pod that is bound. It may change while a process runs.
	PodEvents bool `json:"podEvents"`
}

// Mode is off, observe or write.
type Mode string

// UnmarshalJSON takes false for off, for that is what YAML makes of off without quotes. Anything that is no text is what check names.
func (m *Mode) UnmarshalJSON(text []byte) error {
	if string(text) == "false" {
		*m = "off"
	} else if json.Unmarshal(text, (*string)(m)) != nil {
		*m = Mode(api.Shorten(string(text), maxShown))
	}
	return nil
}

// Log says what is logged, and how.
type Log struct {
	// Level is debug, info, warn or error. It may change while a process runs.
	Level string `json:"level"`
	// Format is text or json.
	Format string `json:"format"`
}

// Default is the configuration without a file.
func Default() Configuration {
	return Configuration{
		APIVersion: APIVersion, Kind: Kind,
		Log:     Log{Level: "info", Format: "text"},
		Volcano: "off", SchedulerNames: []string{api.SchedulerName}, Placement: "pack", IgnoredResources: []string{}, TopologyLevels: []string{},
		NodeTiers: []tiers.Class{},
	}
}

// Read reads a file.
func Read(file string) (Configuration, error) {
	f, err := os.Open(file)
	if err != nil {
		return Configuration{}, fmt.Errorf("read configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return Configuration{}, fmt.Errorf("read configuration %s: %w", file, err)
	case len(text) > maxFile:
		return Configuration{}, fmt.Errorf("read configuration %s: it has more than %d bytes", file, maxFile)
	}
	c, err := Parse(text)
	if err != nil {
		return Configuration{}, fmt.Errorf("configuration %s: %w", file, err)
	}
	return c, nil
}

// Parse reads the text of a file. The error names every field that is wrong.
func Parse(text []byte) (Configuration, error) {
	c := Default()
	if len(bytes.TrimSpace(text)) == 0 {
		return c, errors.New("it is empty")
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return c, errors.New(strings.TrimPrefix(err.Error(), "error converting YAML to JSON: "))
	}
	if v := fields["apiVersion"]; v != APIVersion {
		return c, fmt.Errorf("apiVersion is %q: this program reads %s", fmt.Sprint(cmp.Or(v, any(""))), APIVersion)
	}
	if v := fields["kind"]; v != Kind {
		return c, fmt.Errorf("kind is %q, not %s", fmt.Sprint(cmp.Or(v, any(""))), Kind)
	}
	if err := errors.Join(unknown(reflect.TypeFor[Configuration](), "", fields)...); err != nil {
		return c, err
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil { // a field that is given twice, or has a value of another type
		var wrong *json.UnmarshalTypeError
		if errors.As(err, &wrong) && wrong.Field != "" {
			return c, fmt.Errorf("%s is %s: %s is expected", wrong.Field, shown(wrong.Value), expected(wrong.Type))
		}
		words := err.Error()
		for _, prefix := range []string{"error unmarshaling JSON: ", "while decoding JSON: ", "json: ", "error converting YAML to JSON: "} {
			words = strings.TrimPrefix(words, prefix)
		}
		return c, errors.New(words)
	}
	return c, c.check()
}

// shown and expected are the words for what YAML has and for what a field takes.
func shown(value string) string {
	switch kind, _, _ := strings.Cut(value, " "); kind {
	case "string":
		return "a text"
	case "bool":
		return "true or false"
	case "array":
		return "a list"
	case "object":
		return "a map of fields"
	}
	return "a " + value
}

func expected(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a text"
	case reflect.Slice:
		return "a list"
	}
	return "a map of fields"
}

// unknown returns an error for each field that a type does not have.
func unknown(of reflect.Type, path string, fields map[string]any) (out []error) {
	types := map[string]reflect.Type{}
	for i := range of.NumField() {
		types[of.Field(i).Tag.Get("json")] = of.Field(i).Type
	}
	for _, name := range api.SortedKeys(fields) {
		t, known := types[name]
		inner, isMap := fields[name].(map[string]any)
		switch {
		case !known:
			err := fmt.Sprintf("%s%s: there is no such field", path, name)
			if near := api.Nearest(name, api.SortedKeys(types)); near != "" {
				err += fmt.Sprintf("; did you mean %s%s?", path, near)
			}
			out = append(out, errors.New(err))
		case isMap && t.Kind() == reflect.Struct:
			out = append(out, unknown(t, path+name+".", inner)...)
		case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
			list, _ := fields[name].([]any)
			for i, element := range list {
				if inner, isMap := element.(map[string]any); isMap {
					out = append(out, unknown(t.Elem(), fmt.Sprintf("%s%s[%d].", path, name, i), inner)...)
				}
			}
		}
	}
	return out
}

// check returns an error for each value that means nothing.
func (c *Configuration) check() error {
	var out []error
	oneOf := func(path, value string, values ...string) {
		if !slices.Contains(values, value) {
			err := fmt.Sprintf("%s is %q: one of %s", path, value, strings.Join(values, ", "))
			if near := api.Nearest(value, values); near != "" {
				err += fmt.Sprintf("; did you mean %s?", near)
			}
			out = append(out, errors.New(err))
		}
	}
	oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	oneOf("log.format", c.Log.Format, "text", "json")
	oneOf("volcano", string(c.Volcano), "off", "observe", "write")
	oneOf("placement", c.Placement, "pack", "spread", "least-allocated", "most-allocated")
	if len(c.SchedulerNames) == 0 {
		out = append(out, errors.New("schedulerNames is empty: then no pod is Basalt's"))
	}
	for i, name := range c.SchedulerNames {
		if len(validation.IsDNS1123Subdomain(name)) > 0 {
			out = append(out, fmt.Errorf("schedulerNames[%d] is %q, which no pod can have in spec.schedulerName", i, name))
		}
	}
	for i, name := range c.IgnoredResources {
		if len(validation.IsQualifiedName(name)) > 0 {
			out = append(out, fmt.Errorf("ignoredResources[%d] is %q, which is no name of a resource", i, name))
		}
	}
	if n := len(c.TopologyLevels); n > maxLevels {
		out = append(out, fmt.Errorf("topologyLevels has %d labels: at most %d", n, maxLevels))
	}
	for i, label := range c.TopologyLevels {
		switch {
		case len(validation.IsQualifiedName(label)) > 0:
			out = append(out, fmt.Errorf("topologyLevels[%d] is %q, which is no name of a label", i, label))
		case slices.Index(c.TopologyLevels, label) < i:
			out = append(out, fmt.Errorf("topologyLevels[%d] is %q, which is there before", i, label))
		}
	}
	return errors.Join(append(out, tiers.Check("nodeTiers", c.NodeTiers)...)...)
}

// YAML returns the configuration as a file says it.
func (c Configuration) YAML() []byte {
	out, err := yaml.Marshal(c)
	if err != nil {
		return []byte(err.Error())
	}
	return out
}

// SlogLevel returns the level of the log.
func (c *Configuration) SlogLevel() slog.Level {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.Log.Level)); err != nil {
		return slog.LevelInfo
	}
	return level
}

// changed returns the paths of the fields in which two configurations differ.
func changed(a, b Configuration) []string { return differ("", reflect.ValueOf(a), reflect.ValueOf(b)) }

func differ(path string, a, b reflect.Value) (out []string) {
	for i := range a.NumField() {
		name := path + a.Type().Field(i).Tag.Get("json")
		switch {
		case a.Field(i).Kind() == reflect.Struct:
			out = append(out, differ(name+".", a.Field(i), b.Field(i))...)
		case !reflect.DeepEqual(a.Field(i).Interface(), b.Field(i).Interface()):
			out = append(out, name)
		}
	}
	return out
}

// rereadEvery is how often a file is looked at.
const rereadEvery = 5 * time.Second

// Live are the fields that take effect while a process runs, by path. Each function has its field take effect, and returns its value for
// the log.
type Live map[string]func(Configuration) any

// Follow reads a file again until ctx ends. first is what it said at the start, and flags are the fields that this process has as flags,
// which win over the file.
func Follow(ctx context.Context, file string, first Configuration, live Live, flags map[string]bool, log *slog.Logger) {
	told, failed := first, ""
	tick := time.NewTicker(rereadEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c, err := Read(file)
		if err != nil {
			if failed != err.Error() {
				failed = err.Error()
				log.Error("invalid configuration, keeping the previous one", "error", err)
			}
			continue
		}
		failed = ""
		for _, path := range changed(told, c) {
			switch effect := live[path]; {
			case flags[path]:
				log.Warn("configuration changed: overridden by a flag", "field", path)
			case effect != nil:
				log.Info("configuration changed", "field", path, "value", effect(c))
			default:
				log.Warn("configuration changed: this takes effect at the next start", "field", path)
			}
		}
		told = c
	}
}

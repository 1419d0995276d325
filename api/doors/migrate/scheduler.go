package migrate

import (
	"strings"

	"sigs.k8s.io/yaml"
)

// configuration is what is read of the configuration of Volcano's scheduler.
type configuration struct {
	Actions string `json:"actions"`
	Tiers   []struct {
		Plugins []struct {
			Name string `json:"name"`
		} `json:"plugins"`
	} `json:"tiers"`
}

func (r *rows) scheduler(text string) {
	if text == "" {
		return
	}
	const object = "volcano-scheduler.conf"
	var c configuration
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		r.add(use{Ignored, "it cannot be read: " + err.Error()}, "scheduler configuration", object)
		return
	}
	unknown := use{Ignored, "Basalt does not know it"}
	of := func(table map[string]use, name string) use {
		if u, known := table[name]; known {
			return u
		}
		return unknown
	}
	for action := range strings.SplitSeq(c.Actions, ",") {
		if action = strings.TrimSpace(action); action != "" {
			r.add(of(actions, action), "scheduler action "+action, object)
		}
	}
	for _, t := range c.Tiers {
		for _, p := range t.Plugins {
			r.add(of(plugins, p.Name), "scheduler plugin "+p.Name, object)
		}
	}
}

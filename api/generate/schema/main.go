// Command schema prints the definitions of the CRDs in a folder, named as their Go types are, as the part of an OpenAPI
// document that applyconfiguration-gen reads: the fake client applies by it.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

// types begins the names of the definitions: the path of the Go types, as Kubernetes turns it round.
const types = "dev.basalt.basalt.api."

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "scheduling.basalt.dev_*.yaml"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no CRDs in %s: %w", folder, err)
	}
	definitions := map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		var crd apiextensions.CustomResourceDefinition
		if err := yaml.UnmarshalStrict(text, &crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, v := range crd.Spec.Versions {
			s := definition(v.Schema.OpenAPIV3Schema)
			s["x-kubernetes-group-version-kind"] = []any{
				map[string]any{"group": crd.Spec.Group, "version": v.Name, "kind": crd.Spec.Names.Kind},
			}
			definitions[types+v.Name+"."+crd.Spec.Names.Kind] = s
		}
	}
	document := map[string]any{"swagger": "2.0", "info": map[string]any{"title": "Basalt", "version": "v1beta1"},
		"paths": map[string]any{}, "definitions": definitions}
	return json.NewEncoder(os.Stdout).Encode(document)
}

// definition returns what merging needs of a schema: its structure.
func definition(s *apiextensions.JSONSchemaProps) map[string]any {
	out := map[string]any{}
	switch {
	case s.XIntOrString: // an amount
		out["type"] = "string"
		return out
	case s.Type == "object" && len(s.Properties) == 0 && s.AdditionalProperties == nil: // metadata, of any structure
		return out
	case s.Type != "":
		out["type"] = strings.ToLower(s.Type)
	}
	if len(s.Properties) > 0 {
		properties := map[string]any{}
		for name, p := range s.Properties {
			properties[name] = definition(&p)
		}
		out["properties"] = properties
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		out["additionalProperties"] = definition(s.AdditionalProperties.Schema)
	}
	if s.Items != nil && s.Items.Schema != nil {
		out["items"] = definition(s.Items.Schema)
	}
	if s.XListType != nil {
		out["x-kubernetes-list-type"] = *s.XListType
	}
	if len(s.XListMapKeys) > 0 {
		out["x-kubernetes-list-map-keys"] = s.XListMapKeys
	}
	return out
}

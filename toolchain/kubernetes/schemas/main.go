// Command schemas makes JSON schemas for kubeconform out of what Kubernetes
// publishes of itself, so that a chart can be checked without a cluster and
// without a network: schemas OUT SWAGGER CRD...
//
// SWAGGER is Kubernetes' OpenAPI 2 description, and each CRD a file of
// CustomResourceDefinitions. A schema is named after kind, group and version, as
// kubeconform looks for them ("deployment-apps-v1.json").
//
// They are strict: a field that Kubernetes does not know is an error, while the
// API server only warns of it, or passes over it in silence.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// object is one JSON object.
type object = map[string]any

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: schemas OUT SWAGGER CRD...")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "schemas:", err)
		os.Exit(1)
	}
}

func run(out, swagger string, crds []string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	n, err := builtIn(out, swagger)
	if err != nil {
		return err
	}
	for _, file := range crds {
		m, err := custom(out, file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		n += m
	}
	fmt.Fprintf(os.Stderr, "schemas: %d kinds\n", n)
	return nil
}

// definitions is the file that the schemas of the built-in kinds refer to.
const definitions = "_definitions.json"

// builtIn writes a schema for each kind of the description, and returns how many.
func builtIn(out, swagger string) (int, error) {
	raw, err := os.ReadFile(swagger)
	if err != nil {
		return 0, err
	}
	var api struct {
		Definitions map[string]object `json:"definitions"`
	}
	if err := json.Unmarshal(raw, &api); err != nil {
		return 0, err
	}
	n := 0
	for name, definition := range api.Definitions {
		loosen(name, definition)
		strict(definition)
	}
	for _, definition := range api.Definitions {
		kinds, _ := definition["x-kubernetes-group-version-kind"].([]any)
		if len(kinds) != 1 {
			continue // no kind of its own, or one of every group's, such as DeleteOptions
		}
		k, _ := kinds[0].(object)
		group, _ := k["group"].(string)
		version, _ := k["version"].(string)
		kind, _ := k["kind"].(string)
		if err := write(out, nameOf(kind, group, version), definition); err != nil {
			return n, err
		}
		n++
	}
	return n, write(out, definitions, object{"definitions": api.Definitions})
}

// loosen mends what the description says too narrowly: two types are written as
// strings and may be numbers.
func loosen(name string, definition object) {
	switch {
	case strings.HasSuffix(name, "api.resource.Quantity"):
		definition["type"] = []string{"string", "number"}
	case strings.HasSuffix(name, "util.intstr.IntOrString"):
		definition["type"] = []string{"string", "integer"}
	}
	delete(definition, "format")
}

// custom writes a schema for each version of each definition in a file.
func custom(out, file string) (int, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, document := range bytes.Split(raw, []byte("\n---")) {
		var crd struct {
			Kind string `json:"kind"`
			Spec struct {
				Group string `json:"group"`
				Names struct {
					Kind string `json:"kind"`
				} `json:"names"`
				Versions []struct {
					Name   string `json:"name"`
					Schema struct {
						OpenAPI object `json:"openAPIV3Schema"`
					} `json:"schema"`
				} `json:"versions"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal(document, &crd); err != nil {
			return n, err
		}
		if crd.Kind != "CustomResourceDefinition" {
			continue
		}
		for _, v := range crd.Spec.Versions {
			if v.Schema.OpenAPI == nil {
				return n, errors.New("a version without a schema")
			}
			// What every object has; the API server sees to it itself.
			if properties, ok := v.Schema.OpenAPI["properties"].(object); ok {
				properties["metadata"] = object{"$ref": definitions + "#/definitions/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}
			}
			strict(v.Schema.OpenAPI)
			if err := write(out, nameOf(crd.Spec.Names.Kind, crd.Spec.Group, v.Name), v.Schema.OpenAPI); err != nil {
				return n, err
			}
			n++
		}
	}
	if n == 0 {
		return 0, errors.New("no CustomResourceDefinition is in there")
	}
	return n, nil
}

// strict closes every object that lists its properties, points references to the
// file they are in, and lets fields be both of what they may be.
func strict(node any) {
	switch node := node.(type) {
	case []any:
		for _, child := range node {
			strict(child)
		}
	case object:
		if node["x-kubernetes-int-or-string"] == true {
			node["type"] = []string{"string", "integer"}
			delete(node, "anyOf")
		}
		_, listed := node["properties"].(object)
		_, open := node["additionalProperties"]
		if listed && !open && node["x-kubernetes-preserve-unknown-fields"] != true {
			node["additionalProperties"] = false
		}
		if ref, ok := node["$ref"].(string); ok && strings.HasPrefix(ref, "#") {
			node["$ref"] = definitions + ref
		}
		for _, child := range node {
			strict(child)
		}
	}
}

// nameOf is a schema's file: of a group, the part before the first dot counts.
func nameOf(kind, group, version string) string {
	name := strings.ToLower(kind)
	if group, _, _ = strings.Cut(group, "."); group != "" {
		name += "-" + group
	}
	return name + "-" + version + ".json"
}

func write(out, name string, schema object) error {
	raw, err := json.Marshal(schema)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name), raw, 0o644)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package main writes the reference page of Berth's API from the definitions of its objects. `make generate` runs it.
package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/berth-dev/berth/api/crds"
)

//go:embed page.md.tmpl
var text string

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: apireference EXAMPLES PAGE")
		os.Exit(2)
	} else if err := write(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "write the API reference:", err)
		os.Exit(1)
	}
}

func write(examples, path string) error {
	definitions, err := crds.All()
	if err != nil {
		return err
	}
	page, err := template.New("page").Funcs(template.FuncMap{
		"fields": fields, "checks": checks, "lower": strings.ToLower, "anchor": strings.NewReplacer(".", "", "[]", "").Replace,
		"example": func(name string) (string, error) {
			content, err := os.ReadFile(filepath.Join(examples, name))
			if errors.Is(err, os.ErrNotExist) {
				return "", nil
			}
			return strings.TrimSpace(string(content)), err
		},
		"first": func(text string) string {
			sentence, _, _ := strings.Cut(text, ". ")
			return strings.TrimSuffix(sentence, ".")
		},
	}).Parse(text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := page.Execute(&b, definitions); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

type schema = apiextensionsv1.JSONSchemaProps

// field is one field of an object; its path has [] after a list.
type field struct {
	Path, Type, Default, Description string
	Checks                           []string
}

// fields returns those below a schema, each before its own fields.
func fields(path string, parent *schema) (all []field) {
	for _, name := range slices.Sorted(maps.Keys(parent.Properties)) {
		if path == "" && name != "spec" && name != "status" {
			continue // those that all objects of Kubernetes have
		}
		s := new(parent.Properties[name])
		f := field{Path: strings.TrimPrefix(path+"."+name, "."), Type: typeOf(s), Description: s.Description, Checks: checks(s)}
		if slices.Contains(parent.Required, name) {
			f.Type += ", required"
		}
		if rest, found := strings.CutPrefix(s.Description, name+" "); found {
			f.Description = "`" + name + "` " + rest
		}
		if s.Default != nil && s.Properties == nil { // those of an object are at its fields
			f.Default = strings.Trim(string(s.Default.Raw), `"`)
		}
		all = append(append(all, f), fields(f.Path, s)...)
		if s.Items != nil && name != "networkPolicies" && name != "limitRanges" && name != "limitRange" { // of Kubernetes' own, whose reference has their fields
			all = append(all, fields(f.Path+"[]", s.Items.Schema)...)
		}
	}
	return all
}

func typeOf(s *schema) string {
	switch {
	case s.XIntOrString:
		return "quantity"
	case s.Items != nil && s.XListType != nil && *s.XListType == "map":
		return fmt.Sprintf("list of %ss, one for each `%s`", typeOf(s.Items.Schema), strings.Join(s.XListMapKeys, "`, `"))
	case s.Items != nil:
		return "list of " + typeOf(s.Items.Schema) + "s"
	case s.AdditionalProperties != nil:
		return "map from strings to " + strings.Replace(typeOf(s.AdditionalProperties.Schema)+"s", "ys", "ies", 1)
	}
	return cmp.Or(s.Format, s.Type)
}

// checks returns what the API server demands of a value, each with what it is. A rule is given by its error.
func checks(s *schema) (all []string) {
	if len(s.Enum) > 0 {
		var values []string
		for _, value := range s.Enum {
			values = append(values, "`"+strings.Trim(string(value.Raw), `"`)+"`")
		}
		all = append(all, "one of "+strings.Join(values, ", "))
	}
	all = slices.Concat(all, between(s.Minimum, s.Maximum, ""), between(s.MinLength, s.MaxLength, " characters"),
		between(s.MinItems, s.MaxItems, " entries"))
	if s.AdditionalProperties != nil {
		all = append(all, between(s.MinProperties, s.MaxProperties, " entries")...)
	} else if s.MinProperties != nil && s.Default == nil {
		all = append(all, "has at least one field")
	}
	if s.Pattern != "" && !s.XIntOrString {
		all = append(all, "matches `"+s.Pattern+"`")
	}
	for i := range all {
		all[i] = "Valid: " + all[i]
	}
	if s.Items != nil && s.Items.Schema.Properties == nil {
		for _, check := range checks(s.Items.Schema) {
			all = append(all, strings.Replace(check, "Valid", "Each entry", 1))
		}
	}
	for _, rule := range s.XValidations {
		all = append(all, "Rule: "+rule.Message)
	}
	return all
}

func between[N int64 | float64](least, most *N, of string) []string {
	switch {
	case least != nil && most != nil:
		return []string{fmt.Sprintf("%v to %v%s", int64(*least), int64(*most), of)}
	case least != nil:
		return []string{fmt.Sprintf("at least %v%s", int64(*least), of)}
	case most != nil:
		return []string{fmt.Sprintf("at most %v%s", int64(*most), of)}
	}
	return nil
}

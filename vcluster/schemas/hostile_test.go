// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package schemas

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

type schema = apiextensions.JSONSchemaProps

func definition(schemas ...schema) *apiextensions.CustomResourceDefinition {
	d := &apiextensions.CustomResourceDefinition{}
	for i := range schemas {
		d.Spec.Versions = append(d.Spec.Versions, apiextensions.CustomResourceDefinitionVersion{
			Name: fmt.Sprintf("v%d", i+1), Schema: &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &schemas[i]},
		})
	}
	return d
}

// L3 (S2): a pattern of 21 KB compiles to 100 MiB, which the process keeps; wherever it stands in a definition, it is found.
func TestHostilePatternsAreBoundedWhereverTheyStand(t *testing.T) {
	large := schema{Pattern: "(a?){1000}"}
	one := map[string]schema{"x": large}
	for says, s := range map[string]schema{
		"spec.versions[1].schema.openAPIV3Schema.pattern: Invalid value: 600":                 large,
		"openAPIV3Schema.properties[x].pattern":                                               {Properties: one},
		"openAPIV3Schema.items.pattern":                                                       {Items: &apiextensions.JSONSchemaPropsOrArray{Schema: &large}},
		"openAPIV3Schema.items[0].pattern":                                                    {Items: &apiextensions.JSONSchemaPropsOrArray{JSONSchemas: []schema{large}}},
		"openAPIV3Schema.additionalProperties.pattern":                                        {AdditionalProperties: &apiextensions.JSONSchemaPropsOrBool{Schema: &large}},
		"openAPIV3Schema.additionalItems.pattern":                                             {AdditionalItems: &apiextensions.JSONSchemaPropsOrBool{Schema: &large}},
		"openAPIV3Schema.allOf[0].pattern":                                                    {AllOf: []schema{large}},
		"openAPIV3Schema.anyOf[0].pattern":                                                    {AnyOf: []schema{large}},
		"openAPIV3Schema.oneOf[0].pattern":                                                    {OneOf: []schema{large}},
		"openAPIV3Schema.not.properties[x].pattern":                                           {Not: &schema{Properties: one}},
		"openAPIV3Schema.definitions[x].pattern":                                              {Definitions: one},
		"openAPIV3Schema.dependencies[x].pattern":                                             {Dependencies: apiextensions.JSONSchemaDependencies{"x": {Schema: &large}}},
		"openAPIV3Schema.patternProperties[a].pattern":                                        {PatternProperties: map[string]schema{"a": large}},
		"openAPIV3Schema.patternProperties: Invalid value":                                    {PatternProperties: map[string]schema{"a{999}b{999}c{999}": {}}},
		"limit pattern-bytes): ":                                                              {Pattern: strings.Repeat("a", 5000)},
		"openAPIV3Schema.pattern: Invalid value: 21005: 21005 bytes, at most 4096 are possib": {Pattern: "<1>.." + strings.Repeat("a{1000}", 3000)},
	} {
		errs := Check(definition(schema{}, s))
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), says) {
			t.Errorf("got %v, want one that says %q", errs, says)
		}
		if errs := CheckUpdate(definition(schema{}, s), definition(schema{}, s)); len(errs) != 0 {
			t.Errorf("what was stored before is refused: %v", errs)
		}
	}
	shared := definition(schema{})
	shared.Spec.Validation = &apiextensions.CustomResourceValidation{OpenAPIV3Schema: &large}
	if errs := Check(shared); len(errs) != 1 {
		t.Errorf("a schema of all versions: %v", errs)
	}
}

func TestHostilePatternsAndVersionsAreBoundedInNumber(t *testing.T) {
	many := schema{Properties: map[string]schema{}}
	for i := range 501 {
		many.Properties[fmt.Sprint(i)] = schema{Pattern: fmt.Sprintf("^%d$", i)}
	}
	if errs := Check(definition(many)); len(errs) != 1 || !strings.Contains(errs[0].Error(), "limit definition-patterns") {
		t.Errorf("501 patterns: %v", errs)
	}
	delete(many.Properties, "1")
	if errs := Check(definition(many, many)); len(errs) != 0 {
		t.Errorf("500 patterns: %v", errs)
	}
	if errs := Check(definition(make([]schema, 20)...)); len(errs) != 0 {
		t.Errorf("20 versions: %v", errs)
	}
	old, grown := definition(make([]schema, 30)...), definition(make([]schema, 31)...)
	if errs := CheckUpdate(grown, old); len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.versions: Invalid value: 31") || !strings.Contains(errs[0].Error(), "limit definition-versions") {
		t.Errorf("one version more than 30: %v", errs)
	}
}

// L3: to match a value of 1.5 MB with a pattern of 5,000 instructions takes half a minute, which nothing can interrupt. With all
// patterns of a definition for one value it took hours.
func TestHostilePatternsForOneValueAreBounded(t *testing.T) {
	pattern := func(i int) schema { return schema{Pattern: fmt.Sprintf("(a?){400}%d", i)} }
	var all, properties []schema
	different := schema{Properties: map[string]schema{}}
	for i := range 50 {
		all = append(all, pattern(i))
		properties = append(properties, schema{Properties: map[string]schema{"x": pattern(i)}})
		different.Properties[fmt.Sprint(i)] = pattern(i)
	}
	same := make([]schema, 50)
	for i := range same {
		same[i] = pattern(0)
	}
	for name, s := range map[string]schema{
		"allOf": {AllOf: all}, "the same": {AllOf: same}, "anyOf": {Properties: map[string]schema{"x": {AnyOf: all}}}, "in branches": {OneOf: properties},
		"below": {Not: &schema{AllOf: []schema{{AllOf: all}}}},
	} {
		errs := Check(definition(schema{}, s))
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), "limit value-instructions") {
			t.Errorf("%s: %v", name, errs)
		}
		if errs := CheckUpdate(definition(s), definition(s)); len(errs) != 0 {
			t.Errorf("%s: what was stored before is refused: %v", name, errs)
		}
	}
	if errs := Check(definition(different, different)); len(errs) != 0 {
		t.Errorf("patterns for different values: %v", errs)
	}
}

func TestThePatternsOfUsualDefinitionsPass(t *testing.T) {
	for _, pattern := range []string{
		`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`,
		`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`,
		`^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$`,
		`^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\.)+[a-z]{2,63}$`,
		`^[A-Za-z0-9!#$%&'*+\-.^_\x60|~]{1,256}$`,
		`^[\p{L}\p{N}_ -]+$`,
		// The largest of 1,048 definitions of 30 projects, those of Cilium, has about 3,250 instructions: it takes IPv4 and IPv6
		// addresses, as this does, by their forms.
		strings.Repeat(`(([0-9A-Fa-f]{1,4}:){1,7}(:[0-9A-Fa-f]{1,4}){1,6}|((25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(\.(25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)){3}))|`, 10) + "::",
	} {
		if errs := Check(definition(schema{Pattern: pattern})); len(errs) != 0 {
			t.Error(errs)
		}
	}
}

func TestTheEstimateIsNoLessThanTheProgram(t *testing.T) {
	for _, pattern := range []string{
		"", "a", "abc", "(a?){100}", "(a{10}){20}", "a{5,}", "(ab|cd|ef)*x+y?", "(?i)abc", `\pL{10}`, "(a|b{3,7}c{2,}){4,9}", "^(?:)$", "(((a*)+)?){3}", "[^a].{7}",
	} {
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			t.Fatal(err)
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if got, want := Instructions(pattern), len(program.Inst)-3; got < want || got > 3*want+10+90*strings.Count(pattern, "L")*10 {
			t.Errorf("%s has %d instructions, estimated to be %d", pattern, want, got)
		}
	}
}

// L3 (S2): compiled patterns belong to no space. Those of definitions that are no more must not stay.
func TestHostileTheProcessKeepsFewCompiledPatterns(t *testing.T) {
	size := func() int {
		cache, _ := compiled.Load().(map[string]*regexp.Regexp)
		return len(cache)
	}
	for i := range maxCompiled + 1 {
		if err := validate.Pattern("x", "body", "1", fmt.Sprintf("^1|%d$", i)); err != nil {
			t.Fatal(err)
		}
	}
	if size() <= maxCompiled {
		t.Fatalf("%d patterns are cached: kube-openapi has its cache elsewhere", size())
	}
	TrimCache()
	if size() != 0 {
		t.Errorf("%d patterns stay", size())
	}
	if err := validate.Pattern("x", "body", "b", "^a$"); err == nil {
		t.Error("a pattern has no effect")
	}
}

// L3 (S2): a pattern of some MB takes hundreds of MiB to parse, each time: its length is looked at before.
func TestHostilePatternsThatAreTooLongAreNotParsed(t *testing.T) {
	long := schema{Pattern: strings.Repeat("a?", 200_000)}
	d := definition(schema{AllOf: []schema{long, long, long, long, long}})
	took := testing.AllocsPerRun(1, func() {
		if errs := Check(d); len(errs) != 5 || !strings.Contains(errs[0].Error(), "limit pattern-bytes") {
			t.Errorf("got %v", errs)
		}
	})
	if took > 1000 {
		t.Errorf("it takes %v allocations", took)
	}
}

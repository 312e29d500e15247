// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/gateway/resolve"
)

const (
	apiVersion, kind = "abac.authorization.kubernetes.io/v1beta1", "Policy"
	all              = "*"
	// maxLines limits a file. Each request of a client that the platform knows is compared with each line of its space.
	maxLines = 10_000
)

// line is a policy. The fields are those of Kubernetes' Policy, and those of Arktos' access control for tenants.
type line struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       *spec  `json:"spec"`
}

type spec struct {
	Tenant          string `json:"tenant"`
	User            string `json:"user"`
	Group           string `json:"group"`
	Space           string `json:"space"`
	Readonly        bool   `json:"readonly"`
	APIGroup        string `json:"apiGroup"`
	Resource        string `json:"resource"`
	Namespace       string `json:"namespace"`
	NonResourcePath string `json:"nonResourcePath"`
}

// parse returns the grants of a file by space; those for all spaces are of "*".
func parse(data []byte) (map[string][]access.Grant, error) {
	grants, number := map[string][]access.Grant{}, 0
	for text := range bytes.Lines(data) {
		number++
		text = bytes.TrimSpace(text)
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		if number > maxLines {
			return nil, fmt.Errorf("line %d: there may be %d lines; name groups instead of users", number, maxLines)
		}
		space, grant, err := parseLine(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		grant.Source = fmt.Sprintf("line %d of the authorization policy", number)
		grants[space] = append(grants[space], grant)
	}
	return grants, nil
}

func parseLine(text []byte) (space string, grant access.Grant, err error) {
	var l line
	if err := yaml.UnmarshalStrict(text, &l); err != nil { // of which JSON is a part; it refuses fields that are unknown, and those that are there twice
		return "", grant, fmt.Errorf(`%w; write {"apiVersion": %q, "kind": %q, "spec": {"tenant": ..., "user": ..., "space": ..., "namespace": ..., "resource": ..., "apiGroup": ...}}`, err, apiVersion, kind)
	}
	switch {
	case l.APIVersion != "" && l.APIVersion != apiVersion:
		return "", grant, fmt.Errorf("apiVersion: %q is unknown; write %q", l.APIVersion, apiVersion)
	case l.Kind != kind:
		return "", grant, fmt.Errorf("kind: %q is unknown; write %q", l.Kind, kind)
	case l.Spec == nil:
		return "", grant, errors.New("spec: it is missing; write who may do what there")
	}
	if err := l.Spec.check(); err != nil {
		return "", grant, err
	}
	s := l.Spec
	return cmp.Or(s.Space, resolve.System), access.Grant{Subjects: []access.GrantSubject{s.subject()}, Rules: s.rules()}, nil
}

func (s *spec) check() error {
	for name, value := range map[string]string{"tenant": s.Tenant, "space": s.Space} {
		if value == "" || name == "space" && value == all {
			continue
		}
		if problems := validation.IsDNS1123Label(value); len(problems) > 0 {
			return fmt.Errorf("spec.%s: %.100q: %s; write the name of a %s", name, value, problems[0], name)
		}
	}
	switch {
	case s.User == "" && s.Group == "":
		return errors.New(`spec.user: it is empty, and so is spec.group, so that the line is for nobody; name one of them, or "*" for all users of the tenant`)
	case s.Resource == "" && s.NonResourcePath == "":
		return errors.New(`spec.resource: it is empty, and so is spec.nonResourcePath, so that the line allows nothing; name one of them, or "*" for all`)
	}
	return nil
}

// subject returns who the line is for. As in Kubernetes, a user must be in the group if a line names both.
func (s *spec) subject() access.GrantSubject {
	subject := access.GrantSubject{Tenant: cmp.Or(s.Tenant, resolve.System), Both: true}
	if s.User != "" && s.User != all {
		subject.Users = []string{s.User}
	}
	if s.Group != "" && s.Group != all && s.Group != user.AllAuthenticated {
		subject.Groups = []string{s.Group}
	}
	return subject
}

// rules returns what the line allows. As in Kubernetes, a resource includes its subresources, and an empty namespace means what is in none.
func (s *spec) rules() (rules []access.GrantRule) {
	verbs := []string{all}
	if s.Readonly {
		verbs = []string{"get", "list", "watch"}
	}
	if s.Resource != "" {
		rule := access.GrantRule{Verbs: verbs, APIGroups: []string{s.APIGroup}, Resources: []string{s.Resource}}
		if s.Resource != all && !strings.Contains(s.Resource, "/") {
			rule.Resources = []string{s.Resource + "/*"}
		}
		if s.Namespace != all {
			rule.Namespaces = []string{s.Namespace}
		}
		rules = append(rules, rule)
	}
	if s.NonResourcePath != "" {
		rules = append(rules, access.GrantRule{Verbs: verbs, Paths: []string{s.NonResourcePath}})
	}
	return rules
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/lru"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/published/fieldpath"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

const (
	// MaxPatches is how many a space may have, and how many the platform may have for all spaces.
	MaxPatches = 32
	// maxPrograms is how many compiled expressions are kept for other spaces that have the same.
	maxPrograms = 1000
)

// Compiler compiles patches. Spaces with the same expression share a program, since most patches are for all spaces. It is safe for
// concurrent use.
type Compiler struct {
	expressions func() (*expression.Compiler, error)
	programs    *lru.Cache // by the expression
}

// NewCompiler returns a compiler. What it needs is made at the first patch, because that takes 100 ms.
func NewCompiler() *Compiler {
	return &Compiler{expressions: sync.OnceValues(expression.NewPatchCompiler), programs: lru.New(maxPrograms)}
}

// Compile checks and compiles patches. It returns an error for each invalid value, but the caller checks how many there are.
func (c *Compiler) Compile(specs []v1alpha1.SyncPatch, path *field.Path) (*Patches, field.ErrorList) {
	if len(specs) == 0 {
		return nil, nil
	}
	var errs field.ErrorList
	patches, names := &Patches{}, sets.New[string]()
	for i, spec := range specs {
		at := path.Index(i)
		switch {
		case spec.Name == "":
			errs = append(errs, field.Required(at.Child("name"), "name the patch, such as registry"))
		case names.Has(spec.Name):
			errs = append(errs, field.Duplicate(at.Child("name"), spec.Name))
		}
		names.Insert(spec.Name)
		if spec.Resource != resources.Pods {
			errs = append(errs, field.NotSupported(at.Child("resource"), spec.Resource, []string{resources.Pods}))
		}
		compiled := patch{name: spec.Name}
		var err error
		if compiled.program, err = c.program(spec.Expression); err != nil {
			errs = append(errs, field.Invalid(at.Child("expression"), spec.Expression, err.Error()))
		}
		if compiled.path, err = parse(spec.Path); err != nil {
			errs = append(errs, field.Invalid(at.Child("path"), spec.Path, err.Error()))
		}
		compiled.kind = kindOf(compiled.path)
		patches.list = append(patches.list, compiled)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return patches, nil
}

func (c *Compiler) program(text string) (*expression.Program, error) {
	if made, ok := c.programs.Get(text); ok {
		return made.(*expression.Program), nil
	}
	compiler, err := c.expressions()
	if err != nil {
		return nil, err
	}
	program, err := compiler.Compile(text)
	if err == nil {
		c.programs.Add(text, program)
	}
	return program, err
}

// fields returns the fields of a pod's spec that patches may set. Of the others, some say whose the pod is, some are the host's, the tenant
// may change some later, and the rest have settings of their own, such as spec.priority of a Space.
func fields() []string {
	return []string{
		"affinity", "containers", "dnsConfig", "ephemeralContainers", "imagePullSecrets", "initContainers", "nodeSelector", "securityContext", "tolerations",
		"topologySpreadConstraints", "volumes",
	}
}

// containers returns the fields that have containers.
func containers() []string { return []string{"containers", "initContainers", "ephemeralContainers"} }

func parse(text string) (fieldpath.Path, error) {
	path, err := fieldpath.Parse(text)
	if err == nil {
		err = path.Settable()
	}
	if err != nil {
		return path, err
	}
	first, second, third := path.Name(0), path.Name(1), path.Name(2)
	switch {
	case first == "metadata" && second == "labels" && third != "":
		if problems := validation.IsQualifiedName(third); len(problems) > 0 {
			return path, fmt.Errorf("%q is no key of a label: %s", third, strings.Join(problems, "; "))
		}
		if translate.IsReservedLabel(third) {
			return path, fmt.Errorf("controllers of the host act on the label %s; use a key in a domain of your own", third)
		}
	case first == "metadata":
		return path, errors.New("of metadata, patches may set single labels only, such as metadata.labels.team: controllers of the host act on the rest")
	case first == "spec" && second == "nodeSelector" && third == "":
		return path, errors.New(`name a key, such as spec.nodeSelector.pool: other keys are those of the space's own nodes`)
	case first == "spec" && slices.Contains(containers(), second) && (path.Name(3) == "" || path.Name(3) == "name" || path.Name(3) == "resources"):
		return path, fmt.Errorf("name a field of each container, such as spec.%s[*].image, but neither name nor resources: limits have a limitRange", second)
	case first != "spec" || !slices.Contains(fields(), second):
		return path, fmt.Errorf("of spec, patches may set %s", strings.Join(fields(), ", "))
	}
	return path, path.In(&corev1.Pod{})
}

// kind says of which pods a field can be set.
type kind int

const (
	// ofNew is a field that can't change once the pod is on the host.
	ofNew kind = iota
	// ofAny is a field that may change later.
	ofAny
	// label is a label, which may change later, and also of a pod that would not be created today.
	label
)

func kindOf(path fieldpath.Path) kind {
	switch {
	case path.Name(0) == "metadata":
		return label
	case path.Name(1) == "ephemeralContainers":
		return ofAny
	case slices.Contains(containers(), path.Name(1)) && path.Name(3) == "image":
		return ofAny
	default:
		return ofNew
	}
}

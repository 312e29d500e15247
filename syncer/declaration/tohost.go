// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

const (
	// AnnotationSynced is on host objects: a hash of what Berth wrote, and the names of the fields in it. Fields that the host fills in, or
	// that somebody else adds, stay.
	AnnotationSynced = translate.Domain + "/synced"
	// maxErrors is how many errors of one object are told.
	maxErrors = 10
)

// Imports reports whether the space shows an object of the host, of the ResourceSync of this name.
type Imports func(sync, name string) bool

// ToHost returns the host object of a tenant's, or why there can't be one. The order of fields is that of their names, so that the result
// is the same each time.
func (d *Declaration) ToHost(ctx context.Context, space translate.Space, v *unstructured.Unstructured, imports Imports) (*unstructured.Unstructured, field.ErrorList) {
	t := &toHost{ctx: ctx, d: d, space: space, namespace: v.GetNamespace(), imports: imports}
	content := maps.Clone(v.Object)
	maps.DeleteFunc(content, func(name string, _ any) bool { return isMeta(name) })
	host := &unstructured.Unstructured{Object: t.fields(&d.root, content, nil)}
	if len(t.errs) > 0 {
		return nil, t.errs
	}
	synced, err := syncedOf(host.Object)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(nil, err)}
	}
	meta := space.ObjectMeta(v, NameLimit)
	host.SetGroupVersionKind(d.Kind)
	host.SetName(meta.Name)
	host.SetNamespace(meta.Namespace)
	host.SetLabels(meta.Labels)
	meta.Annotations[AnnotationSynced] = synced
	host.SetAnnotations(meta.Annotations)
	return host, nil
}

// syncedOf is the value of [AnnotationSynced].
func syncedOf(content map[string]any) (string, error) {
	encoded, err := json.Marshal(content)
	if err != nil {
		return "", fmt.Errorf("encode the fields: %w", err)
	}
	hash := sha256.Sum256(encoded)
	return hex.EncodeToString(hash[:16]) + ":" + strings.Join(slices.Sorted(maps.Keys(content)), ","), nil
}

// toHost translates one object.
type toHost struct {
	ctx       context.Context
	d         *Declaration
	space     translate.Space
	namespace string
	imports   Imports
	errs      field.ErrorList
}

func (t *toHost) refuse(err *field.Error) {
	if len(t.errs) < maxErrors {
		t.errs = append(t.errs, err)
	}
}

// fields translates the fields in a field, or in the object. Those that are not declared may have the value that the space's API server
// gives them, which the host's gives them, too.
func (t *toHost) fields(of *node, from map[string]any, at *field.Path) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(from)) {
		value, path := from[name], at.Child(name)
		n := find(of.below, name)
		switch {
		case value == nil: // as if it were not there
		case n == nil && of.defaults[name] != nil && equality.Semantic.DeepEqual(of.defaults[name], value):
		case n == nil:
			t.refuse(field.Forbidden(path, fmt.Sprintf("the platform does not sync this field to the host; remove it, or ask the admin of the platform to add it to the ResourceSync %s", t.d.Name)))
		default:
			if translated := t.node(n, value, path); translated != nil {
				out[name] = translated
			}
		}
	}
	return out
}

func (t *toHost) node(n *node, value any, at *field.Path) any {
	if !n.list {
		return t.item(n, value, at)
	}
	items, ok := value.([]any)
	if !ok {
		t.refuse(field.Invalid(at, "", "must be a list"))
		return nil
	}
	out := make([]any, 0, len(items))
	for i, item := range items {
		if translated := t.item(n, item, at.Index(i)); translated != nil {
			out = append(out, translated)
		}
	}
	return out
}

func (t *toHost) item(n *node, value any, at *field.Path) any {
	if n.leaf != nil {
		return t.leaf(n.leaf, value, at)
	}
	fields, ok := value.(map[string]any)
	if !ok {
		t.refuse(field.Invalid(at, "", "must be an object"))
		return nil
	}
	return t.fields(n, fields, at)
}

func (t *toHost) leaf(l *leaf, value any, at *field.Path) any {
	switch l.kind {
	case v1alpha1.FieldSelector:
		return t.selector(value, at)
	case v1alpha1.FieldObject, v1alpha1.FieldReturnedSecret, v1alpha1.FieldImported:
		name, ok := value.(string)
		if !ok {
			t.refuse(field.Invalid(at, "", "must be a name"))
			return nil
		}
		return t.name(l, name, at)
	}
	if l.rule != nil {
		switch holds, err := l.rule.Holds(t.ctx, value); {
		case err != nil:
			t.refuse(field.Forbidden(at, fmt.Sprintf("the platform's rule for it can't be evaluated: %v", err)))
		case !holds:
			t.refuse(field.Forbidden(at, "the platform allows only values for which this is true: "+l.text))
		}
	}
	return runtime.DeepCopyJSONValue(value)
}

func (t *toHost) name(l *leaf, name string, at *field.Path) any {
	if l.kind == v1alpha1.FieldImported {
		if !t.imports(l.resource, name) {
			t.refuse(field.Forbidden(at, fmt.Sprintf("%q does not exist, or the host does not offer it to the space; see 'kubectl get %s'", name, l.resource)))
		}
		return name
	}
	if problems := apivalidation.NameIsDNSSubdomain(name, false); len(problems) > 0 {
		t.refuse(field.Invalid(at, name, strings.Join(problems, "; ")))
		return nil
	}
	if l.kind == v1alpha1.FieldReturnedSecret {
		return ReturnedName(t.space, t.namespace, name)
	}
	return t.space.HostName(t.namespace, name, NameLimit)
}

// ReturnedMark is in the names on the host of Secrets that return, after the namespace. No translated name of another object has it there.
const ReturnedMark = ".returned"

// ReturnedName is the name on the host of a Secret that returns to a space. No namespace has a dot, so no Secret of the tenant has this name
// there.
func ReturnedName(space translate.Space, namespace, name string) string {
	return space.HostName(namespace+ReturnedMark, name, translate.LimitSubdomain)
}

func (t *toHost) selector(value any, at *field.Path) any {
	fields, ok := value.(map[string]any)
	selector := &metav1.LabelSelector{}
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(fields, selector, true) != nil {
		t.refuse(field.Invalid(at, "", "must be a label selector, with matchLabels and matchExpressions"))
		return nil
	}
	if errs := metav1validation.ValidateLabelSelector(selector, metav1validation.LabelSelectorValidationOptions{}, at); len(errs) > 0 {
		t.refuse(errs[0])
		return nil
	}
	out, err := runtime.DefaultUnstructuredConverter.ToUnstructured(t.space.Selector(selector, t.namespace))
	if err != nil {
		t.refuse(field.InternalError(at, err))
		return nil
	}
	return out
}

// Update copies the tenant's fields of a host object to have, and reports whether anything differed.
func Update(want, have *unstructured.Unstructured) bool {
	wrote := have.GetAnnotations()[AnnotationSynced]
	changed := translate.PushMeta(want, have)
	_, names, _ := strings.Cut(wrote, ":")
	for _, name := range strings.Split(names, ",") {
		if _, still := want.Object[name]; !still && name != "" && !isMeta(name) {
			if _, there := have.Object[name]; there {
				delete(have.Object, name)
				changed = true
			}
		}
	}
	same := wrote == want.GetAnnotations()[AnnotationSynced]
	for name, value := range want.Object {
		if isMeta(name) || same && covers(have.Object[name], value) {
			continue
		}
		if !equality.Semantic.DeepEqual(have.Object[name], value) {
			have.Object[name] = runtime.DeepCopyJSONValue(value)
			changed = true
		}
	}
	return changed
}

func isMeta(name string) bool {
	return slices.Contains([]string{"apiVersion", "kind", "metadata", "status"}, name)
}

// covers reports whether a value has all that another has, and in lists nothing else.
func covers(have, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		has, ok := have.(map[string]any)
		if !ok {
			return false
		}
		for name, value := range want {
			if !covers(has[name], value) {
				return false
			}
		}
		return true
	case []any:
		has, ok := have.([]any)
		return ok && slices.EqualFunc(has, want, covers)
	default:
		return equality.Semantic.DeepEqual(have, want)
	}
}

// Names returns the names that an object, of a tenant or of the host, has in fields of a type, sorted. Those that can't be names are left out.
func (d *Declaration) Names(kind v1alpha1.SyncedFieldType, of *unstructured.Unstructured) (names []string) {
	if !d.types[kind] {
		return nil
	}
	collect(d.root.below, of.Object, func(l *leaf, value any) {
		if name, ok := value.(string); ok && l.kind == kind && len(apivalidation.NameIsDNSSubdomain(name, false)) == 0 {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// collect calls do for the values of all declared fields of an object.
func collect(nodes []*node, from map[string]any, do func(*leaf, any)) {
	for _, n := range nodes {
		items := []any{from[n.name]}
		if n.list {
			items, _ = from[n.name].([]any)
		}
		for _, item := range items {
			if n.leaf != nil {
				do(n.leaf, item)
			} else if fields, ok := item.(map[string]any); ok {
				collect(n.below, fields, do)
			}
		}
	}
}

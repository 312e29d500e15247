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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

const (
	// AnnotationSynced is on host objects: a hash of the fields that Berth wrote.
	AnnotationSynced = translate.Domain + "/synced"
	// maxErrors is how many errors of one object are reported.
	maxErrors = 10
	// maxBytes limits the declared fields of an object, as JSON. The host's watches have them in memory, for all spaces, where they take up
	// to twenty times as much.
	maxBytes = 64 << 10
	// maxReturned is how many Secrets return for an object. Each is read from the host when the object or its status changes.
	maxReturned = 16
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
	encoded, err := json.Marshal(host.Object)
	switch {
	case err != nil:
		return nil, field.ErrorList{field.InternalError(nil, err)}
	case len(encoded) > maxBytes:
		return nil, field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf("the fields that are synced to the host have %d bytes, at most %d are possible; shorten them", len(encoded), maxBytes))}
	case len(d.collected(v1alpha1.FieldReturnedSecret, v)) > maxReturned:
		return nil, field.ErrorList{field.Forbidden(field.NewPath("spec"), fmt.Sprintf("the object names more than %d Secrets that return from the host; name fewer", maxReturned))}
	}
	hash := sha256.Sum256(encoded)
	meta := space.ObjectMeta(v, NameLimit)
	host.SetGroupVersionKind(d.Kind)
	host.SetName(meta.Name)
	host.SetNamespace(meta.Namespace)
	host.SetLabels(meta.Labels)
	meta.Annotations[AnnotationSynced] = hex.EncodeToString(hash[:16])
	host.SetAnnotations(meta.Annotations)
	if d.NamesServices { // the host deletes it with the ResourceSync
		host.SetOwnerReferences([]metav1.OwnerReference{d.owner})
	}
	return host, nil
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
		return ReturnedName(t.d.Name, t.space, t.namespace, name)
	}
	return t.space.HostName(t.namespace, name, NameLimit)
}

// ReturnsSecrets reports whether Secrets return for objects of the declaration.
func (d *Declaration) ReturnsSecrets() bool { return d.types[v1alpha1.FieldReturnedSecret] }

// ReturnedMark follows the name of the space in the names on the host of Secrets that return. Names of other objects of the space begin
// with the name of the space and a dash.
const ReturnedMark = ".returned--"

// ReturnedPrefix begins the names on the host of all Secrets that return to a space by one ResourceSync.
func ReturnedPrefix(sync string, space translate.Space) string {
	hash := sha256.Sum256([]byte(sync))
	return space.Name + ReturnedMark + hex.EncodeToString(hash[:4]) + "-"
}

// ReturnedName is the name on the host of a Secret that returns to a space by a ResourceSync.
func ReturnedName(sync string, space translate.Space, namespace, name string) string {
	hash := sha256.Sum256([]byte(namespace + "/" + name))
	return ReturnedPrefix(sync, space) + hex.EncodeToString(hash[:12])
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

// Update copies the tenant's fields of a host object to have, and reports whether anything differed. Fields that are not declared stay.
func (d *Declaration) Update(want, have *unstructured.Unstructured) bool {
	wrote := have.GetAnnotations()[AnnotationSynced]
	changed := translate.PushMeta(want, have)
	// What the tenant removed is known by the hash only. What the host filled in must not be taken for a change each time.
	exact := wrote != want.GetAnnotations()[AnnotationSynced]
	changed = copyTo(&d.root, want.Object, have.Object, exact) || changed
	if owners := want.GetOwnerReferences(); len(owners) > 0 && !equality.Semantic.DeepEqual(owners, have.GetOwnerReferences()) {
		have.SetOwnerReferences(owners)
		changed = true
	}
	return changed
}

// copyTo copies the declared fields of a value. With exact, those that aren't wanted are removed, and others have nothing beside what is
// wanted, unless that is in a field of its own.
func copyTo(of *node, want, have map[string]any, exact bool) (changed bool) {
	for _, n := range of.below {
		wanted, wants := want[n.name]
		has, there := have[n.name]
		below, isObject := has.(map[string]any)
		switch {
		case !wants && (!there || !exact):
		case n.leaf == nil && !n.list && isObject: // with fields of others
			wantedBelow, _ := wanted.(map[string]any)
			changed = copyTo(n, wantedBelow, below, exact) || changed
			if len(below) == 0 && !wants {
				delete(have, n.name)
			}
		case !wants:
			delete(have, n.name)
			changed = true
		case exact && !equality.Semantic.DeepEqual(has, wanted) || !covers(has, wanted):
			have[n.name] = runtime.DeepCopyJSONValue(wanted)
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

// Names returns the names that an object, of a tenant or of the host, has in fields of a type, sorted: the first few of them, where their
// number is limited. Those that can't be names are left out.
func (d *Declaration) Names(kind v1alpha1.SyncedFieldType, of *unstructured.Unstructured) []string {
	names := d.collected(kind, of)
	return names[:min(len(names), maxReturned)]
}

func (d *Declaration) collected(kind v1alpha1.SyncedFieldType, of *unstructured.Unstructured) (names []string) {
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

// Services returns the names of the Services that an object, of a tenant or of the host, names.
func (d *Declaration) Services(of client.Object) (names []string) {
	o, ok := of.(*unstructured.Unstructured)
	if !ok || !d.NamesServices {
		return nil
	}
	collect(d.root.below, o.Object, func(l *leaf, value any) {
		if name, ok := value.(string); ok && l.kind == v1alpha1.FieldObject && l.resource == resources.Services {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return slices.Compact(names)
}

// ImportedBy returns what an object of a tenant names in fields of type Imported, as the name of the ResourceSync, a slash, and the name.
func (d *Declaration) ImportedBy(v *unstructured.Unstructured) (names []string) {
	if !d.types[v1alpha1.FieldImported] {
		return nil
	}
	collect(d.root.below, v.Object, func(l *leaf, value any) {
		if name, ok := value.(string); ok && l.kind == v1alpha1.FieldImported {
			names = append(names, l.resource+"/"+name)
		}
	})
	return names
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

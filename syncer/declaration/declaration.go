// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

const (
	// NameLimit is the limit of names of host objects, in bytes. Many controllers make a label of the name.
	NameLimit = translate.LimitLabel
	// defaultObjects is how many objects a space may have on the host by default.
	defaultObjects = 100
)

// Declaration is a ResourceSync that was checked. It doesn't change, and is safe for concurrent use.
type Declaration struct {
	// Name is that of the ResourceSync and of the CustomResourceDefinition, such as certificates.cert-manager.io.
	Name string
	Kind schema.GroupVersionKind
	GVR  schema.GroupVersionResource
	// FromHost says that objects originate on the host, and are cluster-scoped. Otherwise they originate in spaces, and are namespaced.
	FromHost bool
	// Max is how many objects a space may have on the host.
	Max int
	// Selector selects the objects of the host that spaces show.
	Selector labels.Selector
	// HasStatus says that the status has requests of its own.
	HasStatus bool
	// Watch differs for declarations whose objects on the host are watched anew.
	Watch uint64
	// Version differs for declarations that copy in another way, or that need other rights.
	Version string
	// NamesServices says that objects name Services, to which controllers of the host connect. When the sync of a space ends, such objects may
	// not remain on the host: nothing checks their Services any more.
	NamesServices bool

	root   node
	status [][]string
	types  map[v1alpha1.SyncedFieldType]bool // of the fields
	owner  metav1.OwnerReference             // the ResourceSync
	source json.RawMessage                   // an encoded [source]
}

// compiler is made at the first rule, since that takes 100 ms.
var compiler = sync.OnceValues(expression.NewRuleCompiler)

// Compile checks a ResourceSync against the definition of its resource. It returns an error for each value that is wrong.
func Compile(of *v1alpha1.ResourceSync, crd *apiextensionsv1.CustomResourceDefinition) (*Declaration, field.ErrorList) {
	spec, path := &of.Spec, field.NewPath("spec")
	d := &Declaration{
		Name: of.Name, Max: int(spec.MaxObjects), types: map[v1alpha1.SyncedFieldType]bool{}, FromHost: spec.Direction == v1alpha1.SyncFromHost,
		Kind:  schema.GroupVersionKind{Group: crd.Spec.Group, Version: spec.Version, Kind: crd.Spec.Names.Kind},
		GVR:   schema.GroupVersionResource{Group: crd.Spec.Group, Version: spec.Version, Resource: crd.Spec.Names.Plural},
		owner: metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ResourceSync", Name: of.Name, UID: of.UID},
	}
	if d.Max == 0 {
		d.Max = defaultObjects
	}
	var errs field.ErrorList
	if builtIn(d.GVR.GroupResource()) {
		return nil, field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), of.Name, "Berth syncs this resource by itself; see its sync option, and delete this ResourceSync")}
	}
	if d.FromHost != (crd.Spec.Scope == apiextensionsv1.ClusterScoped) {
		errs = append(errs, field.Invalid(path.Child("direction"), spec.Direction,
			fmt.Sprintf("the scope of %s is %s; resources that are synced ToHost have to be namespaced, and those FromHost cluster-scoped", of.Name, crd.Spec.Scope)))
	}
	var err error
	if d.Selector, err = selectorOf(spec.Selector); err != nil {
		errs = append(errs, field.Invalid(path.Child("selector"), spec.Selector, err.Error()))
	}
	for i := range spec.Tenants {
		if _, err := metav1.LabelSelectorAsSelector(spec.Tenants[i].Selector); err != nil {
			errs = append(errs, field.Invalid(path.Child("tenants").Index(i).Child("selector"), spec.Tenants[i].Selector, err.Error()))
		}
	}
	version := versionOf(crd, spec.Version)
	if version == nil {
		return nil, append(errs, field.Invalid(path.Child("version"), spec.Version, "the CustomResourceDefinition doesn't serve it; use one that it serves"))
	}
	var root *apiextensionsv1.JSONSchemaProps
	if version.Schema != nil {
		root = version.Schema.OpenAPIV3Schema
	}
	for i := range spec.Fields {
		errs = append(errs, d.add(&spec.Fields[i], root, path.Child("fields").Index(i))...)
	}
	d.HasStatus = version.Subresources != nil && version.Subresources.Status != nil
	if len(spec.Status) > 0 && !d.HasStatus {
		errs = append(errs, field.Forbidden(path.Child("status"), "the CustomResourceDefinition has no subresource status in this version; remove the list"))
	}
	if d.NamesServices && d.types[v1alpha1.FieldReturnedSecret] {
		errs = append(errs, field.Forbidden(path.Child("fields"), "objects that name Services are deleted on the host when a Service changes, so no Secret can return for them; list fields of one of these types"))
	}
	d.root.defaults = defaults(root)
	addDefaults(d.root.below, root)
	for i, text := range spec.Status {
		names := strings.Split(text, ".")
		if _, err := inSchema(root, names); err != nil {
			errs = append(errs, field.Invalid(path.Child("status").Index(i), text, err.Error()))
		}
		d.status = append(d.status, names)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	if d.Version, err = contentOf(d, spec); err == nil {
		d.source, err = sourceOf(of, crd, version)
	}
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	return d, nil
}

// builtIn reports whether Berth syncs a resource without a ResourceSync.
func builtIn(resource schema.GroupResource) bool {
	return slices.ContainsFunc(resources.Table(), func(r resources.Resource) bool { return r.Type != nil && r.GVR().GroupResource() == resource })
}

// selectorOf returns the selector of the host's objects.
func selectorOf(selector *metav1.LabelSelector) (labels.Selector, error) {
	if selector == nil {
		return labels.Parse(resources.ImportSelector)
	}
	return metav1.LabelSelectorAsSelector(selector)
}

func versionOf(crd *apiextensionsv1.CustomResourceDefinition, name string) *apiextensionsv1.CustomResourceDefinitionVersion {
	for i := range crd.Spec.Versions {
		if v := &crd.Spec.Versions[i]; v.Name == name && v.Served {
			return v
		}
	}
	return nil
}

// contentOf is a hash of what a declaration says.
func contentOf(d *Declaration, spec *v1alpha1.ResourceSyncSpec) (string, error) {
	said := spec.DeepCopy()
	said.Tenants = nil
	content, err := json.Marshal([]any{d.Name, d.Kind, said, d.Root(), d.HasStatus})
	if err != nil {
		return "", fmt.Errorf("encode the declaration: %w", err)
	}
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:16]), nil
}

// New returns an empty object of the resource.
func (d *Declaration) New() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(d.Kind)
	return o
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/kube-openapi/pkg/common"
	openapiutil "k8s.io/kube-openapi/pkg/util"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/quota"
)

// TenantQuotaReport returns what a space may know of the quota of its tenant. Errors are for clients to see.
type TenantQuotaReport func(ctx context.Context) (quota.Report, error)

// quotaGroup is the API group of the quota of a space's tenant. It is offered only in a space that has one.
const quotaGroup = "tenancy.berth.dev"

const tenantQuotaVersion, tenantQuotas = "v1alpha1", "tenantquotas"

// TenantQuota is the quota of a space's tenant, as the space sees it. Nobody can write it.
type TenantQuota struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Status TenantQuotaStatus `json:"status"`
}

// TenantQuotaStatus is what the tenant and the space may use, and use.
type TenantQuotaStatus struct {
	// Tenant is of all spaces of the tenant.
	Tenant QuotaUse `json:"tenant"`
	// Space is of this space.
	Space QuotaUse `json:"space"`
}

// QuotaUse is how much of resources may be used, and is.
type QuotaUse struct {
	Hard corev1.ResourceList `json:"hard,omitempty"`
	Used corev1.ResourceList `json:"used,omitempty"`
}

// TenantQuotaList is a list of the one quota that there is.
type TenantQuotaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []TenantQuota `json:"items"`
}

// DeepCopyObject implements [runtime.Object].
func (q *TenantQuota) DeepCopyObject() runtime.Object { return q.copy() }

func (q *TenantQuota) copy() *TenantQuota {
	out := &TenantQuota{TypeMeta: q.TypeMeta, ObjectMeta: *q.DeepCopy()}
	out.Status.Tenant = QuotaUse{q.Status.Tenant.Hard.DeepCopy(), q.Status.Tenant.Used.DeepCopy()}
	out.Status.Space = QuotaUse{q.Status.Space.Hard.DeepCopy(), q.Status.Space.Used.DeepCopy()}
	return out
}

// DeepCopyObject implements [runtime.Object].
func (l *TenantQuotaList) DeepCopyObject() runtime.Object {
	out := &TenantQuotaList{TypeMeta: l.TypeMeta, ListMeta: *l.DeepCopy()}
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].copy())
	}
	return out
}

// describeTenantQuotas adds the type to those that the installation of handlers looks up. Its schema is in no document.
func describeTenantQuotas(c *common.OpenAPIV3Config) {
	c.Definitions = maps.Clone(c.Definitions)
	c.Definitions[openapiutil.GetCanonicalTypeName(&TenantQuota{})] = common.OpenAPIDefinition{
		Schema: spec.Schema{SchemaProps: spec.SchemaProps{Type: []string{"object"}}},
	}
}

// quotaProvider serves [quotaGroup] from the space's own TenantQuota.
type quotaProvider struct{}

func (quotaProvider) GroupName() string { return quotaGroup }

func (quotaProvider) NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	scheme, version := runtime.NewScheme(), schema.GroupVersion{Group: quotaGroup, Version: tenantQuotaVersion}
	for _, v := range []schema.GroupVersion{version, {Group: quotaGroup, Version: runtime.APIVersionInternal}} {
		scheme.AddKnownTypes(v, &TenantQuota{}, &TenantQuotaList{})
	}
	metav1.AddToGroupVersion(scheme, version)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := scheme.SetVersionPriority(version); err != nil {
		return genericapiserver.APIGroupInfo{}, err
	}
	info := genericapiserver.NewDefaultAPIGroupInfo(quotaGroup, scheme, metav1.ParameterCodec, serializer.NewCodecFactory(scheme))
	info.NegotiatedSerializer = withoutProtobuf{info.NegotiatedSerializer}
	info.VersionedResourcesStorageMap[tenantQuotaVersion] = map[string]rest.Storage{tenantQuotas: tenantQuota{}}
	return info, nil
}

// withoutProtobuf has clients that accept other forms, too, get one of these, as for custom resources.
type withoutProtobuf struct{ runtime.NegotiatedSerializer }

func (w withoutProtobuf) SupportedMediaTypes() []runtime.SerializerInfo {
	return slices.DeleteFunc(slices.Clone(w.NegotiatedSerializer.SupportedMediaTypes()), func(s runtime.SerializerInfo) bool {
		return s.MediaType == runtime.ContentTypeProtobuf
	})
}

type tenantQuota struct{}

var (
	_ rest.Getter               = tenantQuota{}
	_ rest.Lister               = tenantQuota{}
	_ rest.Scoper               = tenantQuota{}
	_ rest.SingularNameProvider = tenantQuota{}
)

func (tenantQuota) New() runtime.Object     { return &TenantQuota{} }
func (tenantQuota) NewList() runtime.Object { return &TenantQuotaList{} }
func (tenantQuota) Destroy()                {}
func (tenantQuota) NamespaceScoped() bool   { return false }
func (tenantQuota) GetSingularName() string { return "tenantquota" }

func (tenantQuota) read(ctx context.Context) (*TenantQuota, error) {
	space, err := spaceOf(ctx)
	if err != nil {
		return nil, err
	}
	if space.TenantQuota == nil {
		return nil, apierrors.NewServiceUnavailable("nothing is known of the quota of the tenant")
	}
	report, err := space.TenantQuota(ctx)
	if err != nil {
		return nil, err
	}
	return &TenantQuota{
		ObjectMeta: metav1.ObjectMeta{Name: report.Tenant},
		Status:     TenantQuotaStatus{Tenant: QuotaUse{report.Limit, report.Used}, Space: QuotaUse{report.SpaceLimit, report.SpaceUsed}},
	}, nil
}

func (t tenantQuota) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	object, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	if object.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: quotaGroup, Resource: tenantQuotas}, name)
	}
	return object, nil
}

func (t tenantQuota) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	object, err := t.read(ctx)
	if err != nil {
		return nil, err
	}
	list := &TenantQuotaList{Items: []TenantQuota{}}
	if o != nil && (o.LabelSelector != nil && !o.LabelSelector.Empty() ||
		o.FieldSelector != nil && !o.FieldSelector.Matches(fields.Set{metav1.ObjectNameField: object.Name})) {
		return list, nil // it has no labels
	}
	list.Items = append(list.Items, *object)
	return list, nil
}

// ConvertToTable implements [rest.TableConvertor]: a quota has a row for each resource.
func (tenantQuota) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{}
	for _, name := range []string{"Name", "Resource", "Space used", "Space limit", "Tenant used", "Tenant limit"} {
		column := metav1.TableColumnDefinition{Name: name, Type: "string"}
		if name == "Name" {
			column.Format = "name"
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, column)
	}
	var all []TenantQuota
	switch o := object.(type) {
	case *TenantQuota:
		all = []TenantQuota{*o}
	case *TenantQuotaList:
		all = o.Items
	}
	for i := range all {
		one := &all[i]
		names := slices.AppendSeq(slices.Collect(maps.Keys(one.Status.Tenant.Hard)), maps.Keys(one.Status.Space.Hard))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			table.Rows = append(table.Rows, metav1.TableRow{
				Cells: []any{
					one.Name, string(name), cell(one.Status.Space.Used, name, "0"), cell(one.Status.Space.Hard, name, "-"),
					cell(one.Status.Tenant.Used, name, "0"), cell(one.Status.Tenant.Hard, name, "-"),
				},
				Object: runtime.RawExtension{Object: one},
			})
		}
	}
	return table, nil
}

func cell(amounts corev1.ResourceList, name corev1.ResourceName, missing string) string {
	if amount, ok := amounts[name]; ok {
		return amount.String()
	}
	return missing
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/metadata"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/sharing"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/pki"
)

// PluginName is the name of the admission plugin.
const PluginName = "BerthTenancy"

// Plugin is the admission plugin that protects what Berth keeps in a space for its tenant: from everybody who comes from outside,
// whatever rights they have.
type Plugin struct {
	*admission.Handler
	source *access.Source
	shared *definitions.Source // may be nil
	// The others are set by [Tenancy.Connect].
	tenant     *Authorizer
	all        authorizer.Authorizer // asked about all rights of users
	rules      authorizer.RuleResolver
	namespaces corelisters.NamespaceLister
	objects    metadata.Interface // reads any object of the space
}

var (
	_ admission.MutationInterface   = (*Plugin)(nil)
	_ admission.ValidationInterface = (*Plugin)(nil)
)

func newPlugin(source *access.Source, shared *definitions.Source) *Plugin {
	return &Plugin{Handler: admission.NewHandler(admission.Create, admission.Update, admission.Delete), source: source, shared: shared}
}

// Admit sets the labels and annotations of new namespaces.
func (p *Plugin) Admit(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetOperation() != admission.Create || a.GetSubresource() != "" || a.GetResource().GroupResource() != namespaces {
		return nil
	}
	namespace, err := meta.Accessor(a.GetObject())
	if err != nil {
		return nil //nolint:nilerr // validation says what is wrong
	}
	if set := namespace.GetAnnotations(); set[access.AnnotationKept] != "" {
		delete(set, access.AnnotationKept) // it is what Berth set
		namespace.SetAnnotations(set)
	}
	if rules := p.source.Rules(); rules.Enforces() {
		rules.KeepMetadata(namespace)
	}
	return nil
}

// Validate refuses to change what Berth keeps, and to pass something off as kept.
func (p *Plugin) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if inside.IsKeeper(ctx) {
		return nil
	}
	if a.GetSubresource() == "scale" || a.GetSubresource() == "eviction" {
		return p.checkParent(ctx, a) // also of the controller that scales what a user tells it to
	}
	if inside.Is(ctx) {
		// A webhook or policy of a user may have changed what a controller writes.
		if isPromotion(a) {
			return admission.NewForbidden(a, errors.New(promotionField+": controllers don't promote ServiceAccounts; let an owner set the label"))
		}
		if err := errors.Join(p.checkShare(ctx, a), p.checkTenantAccess(ctx, a)); err != nil {
			return admission.NewForbidden(a, err)
		}
		return nil
	}
	for _, check := range []func(context.Context, admission.Attributes) error{
		checkKept, checkLabels, checkNamespace, p.checkOwnersNamespace, p.checkQuota, p.checkPromotion, p.checkAPIService, p.checkShare, p.checkTenantAccess, checkDefinition,
	} {
		if err := check(ctx, a); err != nil {
			return admission.NewForbidden(a, err)
		}
	}
	return nil
}

var (
	namespaces      = schema.GroupResource{Resource: "namespaces"}
	serviceAccounts = schema.GroupResource{Resource: "serviceaccounts"}
	roleBindings    = schema.GroupResource{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}
)

// metadataOf returns the metadata of an object, or nil.
func metadataOf(object any) metav1.Object {
	m, err := meta.Accessor(object)
	if err != nil {
		return nil
	}
	return m
}

// checkKept refuses changes and deletions of objects that Berth keeps. Role bindings may be changed: they only show rights, and come
// back.
func checkKept(_ context.Context, a admission.Attributes) error {
	old := metadataOf(a.GetOldObject())
	if old == nil || a.GetOperation() == admission.Create {
		return nil
	}
	if err := keptBy(old, a.GetResource().GroupResource()); err != nil && !changesOnlyStatus(a) {
		return err
	}
	return nil
}

// keptBy returns why an object can't be changed, or nil.
func keptBy(object metav1.Object, resource schema.GroupResource) error {
	if publication, ok := object.GetLabels()[v1alpha1.LabelPublication]; ok && metav1.GetControllerOfNoCopy(object) == nil {
		if sharing.IsShare(publication) {
			return fmt.Errorf("a tenant above shares this object as %q; it can't be changed or deleted in this space", publication)
		}
		return fmt.Errorf("the administrator of the platform publishes this object with publication %q; it can't be changed or deleted in a space", publication)
	}
	if tenant, ok := object.GetLabels()[access.LabelTenant]; ok && resource != roleBindings && metav1.GetControllerOfNoCopy(object) == nil {
		return fmt.Errorf("the administrator of the platform sets this object for tenant %s; it can't be changed or deleted in a space", tenant)
	}
	return nil
}

// checkLabels refuses to set or remove the labels by which Berth knows the objects that it keeps.
func checkLabels(_ context.Context, a admission.Attributes) error {
	object := metadataOf(a.GetObject())
	if object == nil || a.GetOperation() == admission.Delete {
		return nil
	}
	var had map[string]string
	if old := metadataOf(a.GetOldObject()); old != nil && a.GetOperation() == admission.Update {
		had = old.GetLabels()
	}
	for _, key := range []string{v1alpha1.LabelPublication, access.LabelTenant, access.LabelRoleBinding} {
		was, before := had[key]
		is, now := object.GetLabels()[key]
		if was == is && before == now {
			continue
		}
		if before {
			return fmt.Errorf("metadata.labels[%s]: it is set by Berth; leave it at %q", key, was)
		}
		return fmt.Errorf("metadata.labels[%s]: it is set by Berth only; remove the label", key)
	}
	return nil
}

func checkNamespace(_ context.Context, a admission.Attributes) error {
	if a.GetResource().GroupResource() != namespaces || a.GetOperation() != admission.Update {
		return nil
	}
	old, object := metadataOf(a.GetOldObject()), metadataOf(a.GetObject())
	if old == nil || object == nil {
		return nil
	}
	return access.CheckMetadata(old, object)
}

// checkOwnersNamespace refuses to create a namespace whose ServiceAccounts would have rights that its creator doesn't have.
func (p *Plugin) checkOwnersNamespace(_ context.Context, a admission.Attributes) error {
	if a.GetResource().GroupResource() != namespaces || a.GetOperation() != admission.Create {
		return nil
	}
	object := metadataOf(a.GetObject())
	if object == nil {
		return nil
	}
	owner, creator := p.source.Rules().OwnerIn(object.GetName()), a.GetUserInfo()
	if owner == "" || isAdmin(creator) {
		return nil
	}
	if standing := p.tenant.standing(creator); standing.Administrator || standing.SpaceAdmin {
		return nil
	}
	return fmt.Errorf("metadata.name: the tenant gives rights to %s, which is of this namespace; ask the administrator of the platform to create it, or choose another name", owner)
}

// isAdmin reports whether a user is an admin of the space, whoever its owners are.
func isAdmin(u user.Info) bool {
	return u != nil && (slices.Contains(u.GetGroups(), pki.AdminGroup) || slices.Contains(u.GetGroups(), user.SystemPrivilegedGroup))
}

// checkQuota answers a dry run. The storage of namespaces decides on others, because it knows which namespaces there are.
func (p *Plugin) checkQuota(_ context.Context, a admission.Attributes) error {
	rules := p.source.Rules()
	if a.GetResource().GroupResource() != namespaces || a.GetOperation() != admission.Create || !a.IsDryRun() || rules.State().Namespaces.Quota == nil {
		return nil
	}
	all, err := p.namespaces.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	all = slices.DeleteFunc(slices.Clone(all), func(n *corev1.Namespace) bool { return !access.IsTenants(n.Name) })
	return rules.CheckQuota(a.GetName(), int64(len(all)))
}

const promotionField = "metadata.labels[" + v1alpha1.LabelPromote + "]"

// isPromotion reports whether a request makes a ServiceAccount an owner.
func isPromotion(a admission.Attributes) bool {
	if a.GetResource().GroupResource() != serviceAccounts || a.GetOperation() == admission.Delete {
		return false
	}
	object, old := metadataOf(a.GetObject()), metadataOf(a.GetOldObject())
	if object == nil || object.GetLabels()[v1alpha1.LabelPromote] != promote {
		return false
	}
	return old == nil || a.GetOperation() != admission.Update || old.GetLabels()[v1alpha1.LabelPromote] != promote
}

// checkPromotion lets only owners with the role admin make a ServiceAccount an owner (O5). Everybody who may change it may end that.
func (p *Plugin) checkPromotion(_ context.Context, a admission.Attributes) error {
	switch {
	case !isPromotion(a):
		return nil
	case !p.source.Rules().Promotes():
		return errors.New(promotionField + ": ServiceAccounts can't be promoted in this space; ask the administrator of the platform to enable serviceAccountPromotion, or remove the label")
	case !p.mayPromote(a.GetUserInfo()):
		return errors.New(promotionField + ": only owners of the tenant with the role admin can promote a ServiceAccount; ask one of them, or remove the label")
	}
	return nil
}

func (p *Plugin) mayPromote(u user.Info) bool {
	return u != nil && (isAdmin(u) || p.tenant.standing(u).MayPromote())
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/berth-dev/berth/api/space/v1alpha1"
)

// CRDMatches returns which CustomResourceDefinition is in force of each name, or of one name if it isn't empty. Errors are for clients
// to see.
type CRDMatches func(ctx context.Context, name string) ([]v1alpha1.CRDMatch, error)

// crdMatches serves CRDMatch objects, which are computed when they are read.
type crdMatches struct{}

var (
	_ rest.Getter               = crdMatches{}
	_ rest.Lister               = crdMatches{}
	_ rest.Scoper               = crdMatches{}
	_ rest.SingularNameProvider = crdMatches{}
)

func (crdMatches) New() runtime.Object     { return &v1alpha1.CRDMatch{} }
func (crdMatches) NewList() runtime.Object { return &v1alpha1.CRDMatchList{} }
func (crdMatches) Destroy()                {}
func (crdMatches) NamespaceScoped() bool   { return false }
func (crdMatches) GetSingularName() string { return "crdmatch" }

func (crdMatches) read(ctx context.Context, name string) ([]v1alpha1.CRDMatch, error) {
	space, err := spaceOf(ctx)
	if err != nil {
		return nil, err
	}
	if space.CRDMatches == nil {
		return nil, nil // there is nothing to choose between
	}
	return space.CRDMatches(ctx, name)
}

func (m crdMatches) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	matches, err := m.read(ctx, name)
	if err != nil {
		return nil, err
	}
	if len(matches) == 0 {
		return nil, apierrors.NewNotFound(v1alpha1.CRDMatches, name)
	}
	return &matches[0], nil
}

func (m crdMatches) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	list := &v1alpha1.CRDMatchList{Items: []v1alpha1.CRDMatch{}}
	if o != nil && o.LabelSelector != nil && !o.LabelSelector.Empty() {
		return list, nil // they have no labels
	}
	matches, err := m.read(ctx, "")
	if err != nil {
		return nil, err
	}
	for i := range matches {
		if o == nil || o.FieldSelector == nil || o.FieldSelector.Matches(fields.Set{metav1.ObjectNameField: matches[i].Name}) {
			list.Items = append(list.Items, matches[i])
		}
	}
	return list, nil
}

// ConvertToTable implements [rest.TableConvertor].
func (crdMatches) ConvertToTable(_ context.Context, object, _ runtime.Object) (*metav1.Table, error) {
	table := &metav1.Table{ColumnDefinitions: []metav1.TableColumnDefinition{
		{Name: "Name", Type: "string", Format: "name", Description: "The name of the definition."},
		{Name: "In force", Type: "string", Description: "Whose definition the space uses: Local, Shared, or None."},
		{Name: "Mode", Type: "string", Description: "How the platform shares its definition: Optional or Forced."},
		{Name: "Reason", Type: "string", Description: "Why, in one word."},
		{Name: "Message", Type: "string", Priority: 1, Description: "Why, in a sentence."},
	}}
	switch o := object.(type) {
	case *v1alpha1.CRDMatch:
		table.Rows = append(table.Rows, matchRow(o))
	case *v1alpha1.CRDMatchList:
		for i := range o.Items {
			table.Rows = append(table.Rows, matchRow(&o.Items[i]))
		}
	}
	return table, nil
}

func matchRow(m *v1alpha1.CRDMatch) metav1.TableRow {
	mode := m.Status.Mode
	if mode == "" {
		mode = "<none>"
	}
	return metav1.TableRow{Cells: []any{m.Name, string(m.Status.InForce), mode, m.Status.Reason, m.Status.Message}, Object: runtime.RawExtension{Object: m}}
}

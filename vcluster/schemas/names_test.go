// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package schemas_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"

	"github.com/berth-dev/berth/vcluster/schemas"
)

// L3 (S2): discovery says all names of a definition once for each version: with 20 versions, a definition of 1 MiB of names
// would make it 20 MiB longer.
func TestHostileADefinitionHasNoManyNames(t *testing.T) {
	d := &apiextensions.CustomResourceDefinition{}
	for i := range 12 {
		d.Spec.Names.ShortNames = append(d.Spec.Names.ShortNames, fmt.Sprint("s", i))
	}
	if errs := schemas.Check(d); len(errs) > 0 {
		t.Errorf("12 names: %v", errs)
	}
	d.Spec.Names.Categories = d.Spec.Names.ShortNames
	if errs := schemas.Check(d); len(errs) != 1 || !strings.Contains(errs[0].Error(), "spec.names.shortNames: Invalid value: 24") {
		t.Errorf("24 names: %v", errs)
	}
	if errs := schemas.CheckUpdate(d, d); len(errs) > 0 {
		t.Errorf("24 names that are there already: %v", errs)
	}
}

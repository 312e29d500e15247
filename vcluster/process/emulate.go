// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/util/compatibility"
	basecompatibility "k8s.io/component-base/compatibility"
)

// Emulate has all control planes of the process serve the APIs and features of an earlier minor version of Kubernetes, such as 1.36, as
// kube-apiserver does with --emulated-version. What they store can be read by an API server of the minor version before that one. It must be
// called before the first [Prepare], and only once. An empty version is that of the binary.
func Emulate(version string) error {
	if version == "" {
		return nil
	}
	registry := compatibility.DefaultComponentGlobalsRegistry
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	registry.AddFlags(flags) // which is the only way to say it to the registry
	err := errors.Join(flags.Set("emulated-version", basecompatibility.DefaultKubeComponent+"="+version), Prepare())
	if err == nil {
		err = utilerrors.NewAggregate(registry.Validate())
	}
	if err != nil {
		return fmt.Errorf("emulate Kubernetes %s: %w", version, err)
	}
	return nil
}

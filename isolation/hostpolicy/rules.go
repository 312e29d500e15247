// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate/pod"
)

// rule is an expression about a value that is there.
func rule(name, value string) string {
	switch name {
	case "own": // all names that are translated hold two dashes, and none of the host's
		return value + ".contains('--')"
	case "empty":
		return "size(" + value + ") == 0"
	case "false":
		return value + " == false"
	case "none":
		return value + " == 'None'"
	case "grace":
		return fmt.Sprintf("%s <= %d", value, bounds.GracePeriodSeconds.Bound().Default)
	case "gate":
		return value + ".startsWith('" + pod.GatePrefix + "')"
	case "scheduler":
		return value + " == '" + corev1.DefaultSchedulerName + "'"
	case "profile": // of seccomp and AppArmor
		return value + " == 'RuntimeDefault' || " + granted(HostProfiles)
	case "host-profile":
		return value + " == '' || " + granted(HostProfiles)
	case "secret-type":
		return value + " in " + quoted(string(corev1.SecretTypeOpaque), string(corev1.SecretTypeDockercfg), string(corev1.SecretTypeDockerConfigJson),
			string(corev1.SecretTypeTLS), string(corev1.SecretTypeBasicAuth), string(corev1.SecretTypeSSHAuth))
	case "class":
		return classRule(value)
	case "selector":
		return selectorRule(value)
	case "plain-path": // see translate.CheckIngress
		return value + " == '' || " + value + ".matches('^/[A-Za-z0-9._~%:@&+,=/!*()-]*$')"
	default:
		panic("no rule is called " + name)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package defaults creates what each host has: the BerthConfiguration, the tenant of the host itself, and the default tenant (T3,
// T4). It creates what is missing, and changes nothing that is there.
package defaults

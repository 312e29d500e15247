// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package policy reads authorization policies of the platform's admin from a file (Z4): lines in the format of Kubernetes' attribute-based
// access control, with the tenant of the user and the space that is reached. It turns them into grants, which spaces enforce.
//
// The platform calls it. It authorizes nothing itself.
package policy

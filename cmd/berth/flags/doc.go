// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package flags has the flags that several commands share, and what they mean: which host is used, how objects are printed,
// how long a command waits, and how names are completed.
package flags

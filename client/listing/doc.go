// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package listing reads objects of Berth from a host and prints them as kubectl get does: as the tables that the API
// server makes, or as whole objects. Commands call it. It doesn't interpret the objects.
package listing

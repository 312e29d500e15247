// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requests bounds what a request to a space's API may take: memory for what it sends and for what it is
// answered with, work that goes on when its client has gone, fields and patches that take long to handle, and
// connections of clients that don't read.
//
// Most of it are HTTP filters, which vcluster puts around upstream's handlers. They keep in the request's context what
// storage and admission need to know of it. The limits themselves are in package bounds. It knows no storage, and no
// admission plugin.
package requests

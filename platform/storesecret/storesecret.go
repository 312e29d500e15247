// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package storesecret reads the Secrets on the host that say how to connect to the database servers with the stores of spaces.
//
// The manager calls it when a space starts, and when its store is copied or deleted. It writes nothing.
package storesecret

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/translate"
)

// These are the keys of such a Secret.
const (
	dsnKey  = "dsn"
	caKey   = "ca.crt"
	certKey = "tls.crt"
	keyKey  = "tls.key"
)

// Read returns the database server with the store of a space, whose ID the caller adds; nil if the store is a file. namespace is
// that of the Secrets; if it is empty, there are none. An error wraps [kine.ErrServer], and has no DSN.
//
// The Secret must say that it is for this space: somebody who may create spaces, but not read Secrets, could otherwise use
// those of other spaces.
func Read(ctx context.Context, host client.Reader, namespace, space string, store v1alpha1.Store) (*kine.Server, error) {
	if !store.InServer() {
		return nil, nil
	}
	if namespace == "" {
		return nil, fmt.Errorf("%w: the platform reads no Secrets; start Berth with --store-secrets (in the chart: storeSecrets)", kine.ErrServer)
	}
	name := client.ObjectKey{Namespace: namespace, Name: store.SecretName}
	secret := &corev1.Secret{}
	if err := host.Get(ctx, name, secret); err != nil {
		return nil, fmt.Errorf("%w: read Secret %s of spec.store.secretName: %w", kine.ErrServer, name, err)
	}
	if secret.Labels[translate.LabelSpace] != space {
		return nil, fmt.Errorf("%w: Secret %s of spec.store.secretName is not for this space; if it should be, label it with %s=%s",
			kine.ErrServer, name, translate.LabelSpace, space)
	}
	server := &kine.Server{Type: kine.ServerType(store.Type), DSN: string(secret.Data[dsnKey]), CA: secret.Data[caKey]}
	if server.DSN == "" {
		return nil, fmt.Errorf("%w: Secret %s has no key %s", kine.ErrServer, name, dsnKey)
	}
	if server.Type.HasClientCertificates() {
		server.Cert, server.Key = secret.Data[certKey], secret.Data[keyKey]
	}
	return server, nil
}

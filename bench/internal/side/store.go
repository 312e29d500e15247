// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/translate"
)

// Store is where a space has its store.
type Store struct {
	Type v1alpha1.StoreType
	DSN  string // empty if the store is a file
}

// StartStoredArgs are for [Agent.StartStored].
type StartStoredArgs struct {
	Name  string
	Store Store
}

// storer is a side whose control planes have stores of several types.
type storer interface {
	// StartStored is Start of a control plane with a store.
	StartStored(ctx context.Context, name string, store Store) (kubeconfig []byte, err error)
}

// StartStored starts a space with a store.
func (a *Agent) StartStored(args StartStoredArgs, kubeconfig *[]byte) (err error) {
	s, ok := a.side.(storer)
	if !ok {
		return errors.ErrUnsupported
	}
	*kubeconfig, err = s.StartStored(a.ctx, args.Name, args.Store)
	return err
}

// StartStored implements storer.
func (b *berth) StartStored(ctx context.Context, name string, store Store) ([]byte, error) {
	if store.DSN != "" {
		b.stores.Store(name, &kine.Server{Type: kine.ServerType(store.Type), DSN: store.DSN, ID: name})
	}
	return b.Start(ctx, name)
}

// serverOf returns the database server with the store of a space; nil if that is a file.
func (b *berth) serverOf(name string) (*kine.Server, error) {
	server, is := b.stores.Load(name)
	if !is {
		return nil, nil
	}
	given := *server.(*kine.Server) // the shard may change it
	return &given, nil
}

// storeSecrets is the host namespace of the Secrets with the DSNs of spaces.
const storeSecrets = metav1.NamespaceDefault

// StartStored implements storer.
func (p *spacePlatform) StartStored(ctx context.Context, name string, store Store) ([]byte, error) {
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if store.DSN != "" {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-store", Namespace: storeSecrets, Labels: map[string]string{translate.LabelSpace: name}},
			StringData: map[string]string{"dsn": store.DSN},
		}
		if err := p.host.Create(ctx, secret); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create the Secret of the store of space %s: %w", name, err)
		}
		space.Spec.Store = v1alpha1.Store{Type: store.Type, SecretName: secret.Name}
	}
	return p.create(ctx, space)
}

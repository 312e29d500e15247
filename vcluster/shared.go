// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controlplane"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/credentials"
	"github.com/berth-dev/berth/vcluster/openapi"
	"github.com/berth-dev/berth/vcluster/storage"
)

// sharedAPI is what all control planes of the process share.
type sharedAPI struct {
	*builtin.API
	// documents are those of tenants' spaces, and plain those of other control planes.
	documents, plain *openapi.Documents
}

// documentsOf returns the OpenAPI documents of control planes with an offer: one for all, so that what not all of them offer is not there.
func (s *sharedAPI) documentsOf(o builtin.Offers) *openapi.Documents {
	if o.Tenant {
		return s.documents
	}
	return s.plain
}

// builtinAPI is created by the first control plane that succeeds.
var builtinAPI = onceMade(newBuiltinAPI) //nolint:gochecknoglobals // Shared knowingly; does not change once made.

// onceMade returns a function that returns the result of build. If build has failed, it is called again: a full disk or
// a busy machine may make one start fail, and must not make all others fail.
func onceMade[T any](build func() (*T, error)) func() (*T, error) {
	var mu sync.Mutex
	var made *T
	return func() (*T, error) {
		mu.Lock()
		defer mu.Unlock()
		if made != nil {
			return made, nil
		}
		var err error
		made, err = build()
		return made, err
	}
}

func newBuiltinAPI() (*sharedAPI, error) {
	o := commonOptions(nil)
	generic, err := commonConfig(o.GenericServerRunOptions, o.APIEnablement)
	if err != nil {
		return nil, err
	}
	openapi.DescribeTokens(generic)
	generic.Authentication.APIAudiences = authenticator.Audiences{credentials.SharedIssuer} // never used: each space has its own registry of tokens
	// Upstream's allocator of ports needs a store when it is created.
	scratch, err := openScratch()
	if err != nil {
		return nil, err
	}
	defer scratch.close()
	scratch.Configure(&o.Etcd.StorageConfig, "scratch")
	storage, err := storageFactory(generic, o.Etcd)
	if err != nil {
		return nil, err
	}
	_, serviceRange, err := net.ParseCIDR(defaultServiceCIDR)
	if err != nil {
		return nil, fmt.Errorf("parse service range: %w", err)
	}
	api, err := builtin.New(builtin.Config{
		Generic:     generic,
		RESTOptions: o.Etcd.CreateRESTOptionsGetter(storage, nil),
		Storage:     storage,
		Control: controlplaneapiserver.Extra{
			EventTTL:         o.EventTTL,
			ExtendExpiration: o.Authentication.ServiceAccounts.ExtendExpiration,
		},
		Core: controlplane.Extra{
			ServiceIPRange:       *serviceRange,
			APIServerServicePort: kubernetesServicePort,
			ServiceNodePortRange: o.ServiceNodePortRange,
		},
	})
	if err != nil {
		return nil, err
	}
	with := func(everywhere builtin.Offers) *openapi.Documents {
		return &openapi.Documents{Builtin: func() http.Handler { return api.OpenAPI(everywhere) }}
	}
	return &sharedAPI{API: api, documents: with(builtin.Offers{Tenant: true}), plain: with(builtin.Offers{})}, nil
}

// scratch is a store that is deleted when it is closed.
type scratch struct {
	*storage.Store
	dir string
}

func openScratch() (*scratch, error) {
	dir, err := os.MkdirTemp("", "berth-")
	if err != nil {
		return nil, fmt.Errorf("make scratch store: %w", err)
	}
	store, err := kine.Open(context.Background(), kine.Options{Path: filepath.Join(dir, "store.db"), Name: "scratch"})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make scratch store: %w", err), os.RemoveAll(dir))
	}
	return &scratch{storage.New(store, nil), dir}, nil
}

func (s *scratch) close() {
	if err := errors.Join(s.Close(), os.RemoveAll(s.dir)); err != nil {
		klog.Background().Error(err, "Removing a scratch store", "dir", s.dir)
	}
}

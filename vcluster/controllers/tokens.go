// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	serviceaccountcontroller "k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/berth-dev/berth/vcluster/credentials"
)

// tokensWorkers is upstream's default of --concurrent-serviceaccount-token-syncs.
const tokensWorkers = 5

// tokensController fills in Secrets of type kubernetes.io/service-account-token.
type tokensController struct {
	*serviceaccountcontroller.TokensController
}

func newTokensController(
	ctx context.Context, id credentials.Set, servingCA []byte, clients clientbuilder.ControllerClientBuilder, factory informers.SharedInformerFactory,
) (app.Controller, error) {
	key, err := keyutil.PrivateKeyFromFile(id.ServiceAccountKey)
	if err != nil {
		return nil, fmt.Errorf("read service-account key: %w", err)
	}
	generator, err := serviceaccount.JWTTokenGenerator(serviceaccount.LegacyIssuer, key)
	if err != nil {
		return nil, fmt.Errorf("use service-account key: %w", err)
	}
	client, err := clients.Client("tokens-controller")
	if err != nil {
		return nil, err
	}
	c, err := serviceaccountcontroller.NewTokensController(klog.FromContext(ctx),
		factory.Core().V1().ServiceAccounts(), factory.Core().V1().Secrets(), client,
		serviceaccountcontroller.TokensControllerOptions{TokenGenerator: generator, RootCA: servingCA})
	if err != nil {
		return nil, fmt.Errorf("build controller of service-account tokens: %w", err)
	}
	return &tokensController{c}, nil
}

func (*tokensController) Name() string { return names.ServiceAccountTokenController }

func (t *tokensController) Run(ctx context.Context) { t.TokensController.Run(ctx, tokensWorkers) }

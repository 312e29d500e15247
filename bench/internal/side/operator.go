// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator"
	"github.com/berth-dev/berth/platform/spaceobjects"
)

// tenantOperator is all of `berth operator`, whose host runs in another process. Nobody serves the spaces that it creates.
type tenantOperator struct {
	cancel context.CancelFunc
	ended  chan error
}

func openOperator(ctx context.Context, args OpenArgs) (*tenantOperator, error) {
	host, err := clientcmd.RESTConfigFromKubeConfig(args.Host)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of the host: %w", err)
	}
	objects, err := spaceobjects.Open(host, v1alpha1.DefaultPlatformName)
	if err != nil {
		return nil, err
	}
	if err := objects.Define(ctx); err != nil { // as a platform does
		return nil, err
	}
	operator.TuneGC() // as `berth operator` does
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	o := &tenantOperator{cancel: cancel, ended: make(chan error, 1)}
	go func() {
		o.ended <- operator.New(operator.Config{Host: host, ShardNamespace: ShardNamespace, Logger: klog.Background()}).Run(run)
	}()
	return o, nil
}

func (o *tenantOperator) Start(context.Context, string) ([]byte, error) {
	return nil, errors.ErrUnsupported
}

func (o *tenantOperator) Stop(context.Context, string) error { return errors.ErrUnsupported }

func (o *tenantOperator) Close(context.Context) error {
	o.cancel()
	return <-o.ended
}

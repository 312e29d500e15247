// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// sharedAwake is how many of the spaces that a definition is shared with are awake.
	sharedAwake = 10
	// sharesServe is the share of the time of one stock server in which all awake spaces serve a definition that is shared.
	sharesServe = 2
)

// sharer shares definitions of a host with spaces, most of which sleep.
type sharer struct {
	host    client.Client
	defines apiextensions.Interface // on the host
	awake   []*plane
	asleep  int
}

// measureShare measures how long it takes until spaces serve a definition of the host that is shared with them.
func measureShare(ctx context.Context, b *bench, s *sides) error {
	s.idleAfter = sleepAgain
	sh, end, err := b.openSharer(ctx, s)
	if err != nil {
		return err
	}
	defer end()
	stock, err := s.get(ctx, side.Stock)
	if err != nil {
		return err
	}
	peer, _, err := stock.start(ctx, "bench-share")
	if err != nil {
		return err
	}
	served, err := b.inTurn(ctx, "share_500_s", b.repeats, sh.awake[0], func(repeat int) (float64, error) {
		return sh.share(ctx, repeat)
	}, func(repeat int) (float64, error) {
		return peer.define(ctx, repeat)
	})
	if err != nil {
		return err
	}
	if asleep, err := sh.sleepers(ctx); err != nil || asleep != sh.asleep {
		return errors.Join(err, fmt.Errorf("%d spaces slept before definitions were shared, and %d do afterward", sh.asleep, asleep))
	}
	b.add("share_500_s", "s", served, report.AtMostShare(sharesServe))
	b.report.Note("share_500_s: with %d spaces, of which %d are awake and all others still slept afterward; stock's is one server's own definition", b.shareSpaces, sharedAwake)
	return nil
}

// openSharer starts the spaces, and waits until only those sleep that are to.
func (b *bench) openSharer(ctx context.Context, s *sides) (sh *sharer, end func(), err error) {
	platform, err := s.platform(ctx)
	if err != nil {
		return nil, nil, err
	}
	host, err := s.hostPlane()
	if err != nil {
		return nil, nil, err
	}
	sh = &sharer{}
	if sh.defines, err = apiextensions.NewForConfig(rest.CopyConfig(host.config)); err != nil {
		return nil, nil, fmt.Errorf("make client of the host: %w", err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, nil, fmt.Errorf("make client of the host: %w", err)
	}
	if sh.host, err = client.New(rest.CopyConfig(host.config), client.Options{Scheme: scheme}); err != nil {
		return nil, nil, fmt.Errorf("make client of the host: %w", err)
	}
	planes := make([]*plane, b.shareSpaces)
	b.say("creating %d spaces", b.shareSpaces)
	var group errgroup.Group
	group.SetLimit(workers)
	for i := range planes {
		group.Go(func() (err error) {
			planes[i], _, err = platform.start(ctx, fmt.Sprint(side.TenantPrefix, i))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, nil, err
	}
	sh.awake, sh.asleep = planes[:sharedAwake], b.shareSpaces-sharedAwake
	watching, end := context.WithCancel(ctx)
	for _, p := range sh.awake {
		client, _, err := p.client()
		if err != nil {
			end()
			return nil, nil, err
		}
		if _, err := client.CoreV1().ConfigMaps("").Watch(watching, metav1.ListOptions{}); err != nil { // it keeps the space awake
			end()
			return nil, nil, fmt.Errorf("watch %s: %w", p.name, err)
		}
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		asleep, err := sh.sleepers(ctx)
		return asleep == sh.asleep, err
	})
	if err != nil {
		end()
		return nil, nil, fmt.Errorf("wait until %d spaces sleep: %w", sh.asleep, err)
	}
	return sh, end, nil
}

// sleepers counts the spaces that sleep.
func (sh *sharer) sleepers(ctx context.Context) (n int, err error) {
	var spaces v1alpha1.SpaceList
	if err := sh.host.List(ctx, &spaces); err != nil {
		return 0, fmt.Errorf("list spaces: %w", err)
	}
	for i := range spaces.Items {
		if spaces.Items[i].Status.State == v1alpha1.SpaceAsleep {
			n++
		}
	}
	return n, nil
}

// share creates a definition on the host, shares it, and returns how many seconds it takes from then until all awake spaces serve it.
func (sh *sharer) share(ctx context.Context, repeat int) (float64, error) {
	crd := newDefinition(repeat)
	if _, err := sh.defines.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create a definition on the host: %w", err)
	}
	host := &plane{name: "the host"}
	if err := host.awaitServed(ctx, sh.defines, crd); err != nil {
		return 0, err
	}
	begin := time.Now()
	share := &v1alpha1.CRDShare{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: v1alpha1.CRDShareSpec{
		Mode: v1alpha1.OptionalCRD, Tenants: []v1alpha1.CRDShareTenants{{Selector: &metav1.LabelSelector{}}},
	}}
	if err := sh.host.Create(ctx, share); err != nil {
		return 0, fmt.Errorf("share a definition: %w", err)
	}
	group, serving := errgroup.WithContext(ctx)
	for _, p := range sh.awake {
		group.Go(func() error {
			client, err := apiextensions.NewForConfig(rest.CopyConfig(p.config))
			if err != nil {
				return fmt.Errorf("make client of %s: %w", p.name, err)
			}
			return p.awaitServed(serving, client, crd)
		})
	}
	err := group.Wait()
	return time.Since(begin).Seconds(), err
}

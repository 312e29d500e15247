// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/custom"
	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

// defined is what the definitions of one side cost.
type defined struct {
	each   probe.Footprint
	serves []float64 // seconds from each request to create a definition until its objects can be listed
}

// measureDefinitions measures what CustomResourceDefinitions of tenants cost in many awake spaces, and how long they take to be served.
func measureDefinitions(ctx context.Context, b *bench, s *sides) error {
	stock, err := b.define(ctx, s, side.Stock, b.stockSpaces)
	if err != nil {
		return err
	}
	if err := s.end(side.Stock); err != nil {
		return err
	}
	spaces, err := b.define(ctx, s, side.Berth, b.crdSpaces)
	if err != nil {
		return err
	}
	const kib = 1 << 10
	r := &b.report
	r.Add("crd_rss_kib", "KiB", spaces.each.RSSMiB*kib, stock.each.RSSMiB*kib, report.AtMostShare(1))
	r.Add("crd_heap_kib", "KiB", spaces.each.HeapMiB*kib, stock.each.HeapMiB*kib, report.Target{})
	r.Add("crd_serve_s", "s", report.Percentile(spaces.serves, 50), report.Percentile(stock.serves, 50), report.AtMostShare(definitionServes))
	r.Add("crd_serve_s_p99", "s", report.Percentile(spaces.serves, 99), report.Percentile(stock.serves, 99), report.Target{})
	r.Note("crd_rss_kib: slope over %d definitions in each of %d awake spaces; stock's over as many in each of %d servers", b.crds, b.crdSpaces, b.stockSpaces)
	return nil
}

// definitionServes is the share of stock's time that a definition may take until it is served: it is the same code.
const definitionServes = 1.1

// define starts control planes of a side, and creates definitions in each.
func (b *bench) define(ctx context.Context, s *sides, name string, n int) (d defined, err error) {
	c, err := s.get(ctx, name)
	if err != nil {
		return d, err
	}
	b.say("%s: starting %d", name, n+1)
	planes := make([]*plane, n)
	first, _, err := c.start(ctx, "bench-crds-first") // makes what a process makes once
	if err != nil {
		return d, err
	}
	if _, err := b.defineIn(ctx, first); err != nil {
		return d, err
	}
	for i := range planes {
		if planes[i], _, err = c.start(ctx, fmt.Sprint("bench-crds-", i)); err != nil {
			return d, err
		}
	}
	before, err := b.rest(ctx, c)
	if err != nil {
		return d, err
	}
	heapBefore, err := b.profile(ctx, c, "before")
	if err != nil {
		return d, err
	}
	for _, p := range planes {
		seconds, err := b.defineIn(ctx, p)
		if err != nil {
			return d, err
		}
		d.serves = append(d.serves, seconds...)
	}
	after, err := b.rest(ctx, c)
	if err != nil {
		return d, err
	}
	d.each = after.Minus(before, n*b.crds)
	heapAfter, err := b.profile(ctx, c, "after")
	if err != nil || name == side.Stock {
		return d, err
	}
	return d, b.explainMemory("a definition", heapBefore, heapAfter, n*b.crds)
}

// defineIn creates definitions in a control plane, one after the other, and returns how long each took to be served.
func (b *bench) defineIn(ctx context.Context, p *plane) (seconds []float64, err error) {
	for i := range b.crds {
		took, err := p.define(ctx, i)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, took)
	}
	return seconds, nil
}

// define creates a definition in a control plane, and returns how many seconds it takes until it is served.
func (p *plane) define(ctx context.Context, i int) (float64, error) {
	client, err := apiextensions.NewForConfig(rest.CopyConfig(p.config))
	if err != nil {
		return 0, fmt.Errorf("make client of %s: %w", p.name, err)
	}
	crd := custom.NewDefinition(i)
	begin := time.Now()
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create a definition in %s: %w", p.name, err)
	}
	err = p.awaitServed(ctx, client, crd)
	return time.Since(begin).Seconds(), err
}

// awaitServed waits until a control plane serves the objects of a definition.
func (p *plane) awaitServed(ctx context.Context, client apiextensions.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	objects := client.ApiextensionsV1().RESTClient()
	err := wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		err := objects.Get().AbsPath("/apis", custom.Group, "v1", crd.Spec.Names.Plural).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait until %s serves %s: %w", p.name, crd.Name, err)
	}
	return nil
}

const (
	// sharedAwake is how many of the spaces that a definition is shared with are awake.
	sharedAwake = 10
	// sharesServe is the share of the time of one stock server in which all awake spaces serve a definition that is shared.
	sharesServe = 1
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
	if asleep, err := sh.sleepers(ctx); err != nil || asleep < sh.asleep {
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
	using, end := context.WithCancel(ctx)
	for _, p := range sh.awake {
		client, _, err := p.client()
		if err != nil {
			end()
			return nil, nil, err
		}
		go wait.UntilWithContext(using, func(ctx context.Context) {
			_, _ = client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
		}, time.Second)
	}
	err = wait.PollUntilContextTimeout(ctx, time.Second, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		asleep, err := sh.sleepers(ctx)
		return asleep >= sh.asleep, err
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
	crd := custom.NewDefinition(repeat)
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

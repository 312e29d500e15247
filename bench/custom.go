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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

const (
	// mostCustom is how many objects a space may have on the host by a ResourceSync.
	mostCustom = 10_000
	// customTime is how long all objects may take until their status is back, or until they are gone.
	customTime = 5 * time.Minute
	// customShare is the share of the time of one stock server, where each object takes two writes. Through a space it takes four, each after
	// the event of the one before.
	customShare = 3
)

// customWay is one of the two ways of a custom resource to the controller that writes its status, and back: through a space, or directly.
type customWay struct {
	tenant, controller way
	name               string // of the objects
	stops              []func()
}

// measureCustom creates custom resources in a space, has a controller of the host write their status, and takes the time until a watch in
// the space shows the status of all.
func measureCustom(ctx context.Context, b *bench, s *sides) error {
	crd := newCustomDefinition()
	through, err := s.customThrough(ctx, crd)
	if err != nil {
		return err
	}
	defer through.stop()
	direct, err := s.customDirect(ctx, crd)
	if err != nil {
		return err
	}
	defer direct.stop()
	var onHost pair
	side := func(w *customWay, onHost *[]float64) func(int) (float64, error) {
		return func(repeat int) (float64, error) {
			if err := s.quiet(ctx, side.Host, side.Platform, side.Operator, side.Stock); err != nil {
				return 0, err
			}
			toHost, back, err := b.customOnce(ctx, w, crd, repeat)
			*onHost = append(*onHost, toHost)
			return back, err
		}
	}
	for _, w := range []*customWay{direct, through} {
		if _, err := side(w, new([]float64))(-1); err != nil { // to warm up
			return err
		}
	}
	p, err := b.inTurn(ctx, "custom_200_s", b.repeats, through.tenant.plane, side(through, &onHost.berth), side(direct, &onHost.stock))
	if err != nil {
		return err
	}
	onHost.berth = onHost.berth[:len(p.berth)] // without the one of a profile
	b.add("custom_200_s", "s", p, report.AtMostShare(customShare))
	b.add("custom_to_host_200_s", "s", onHost, report.Target{})
	b.report.Note("custom_200_s: %d objects by %d clients, and %d of a controller; stock's are on one server, whose users and controller share it: two writes each, and not four", b.custom, b.bursters, b.bursters)
	return nil
}

// customThrough starts a platform with a tenant, whose objects of a definition are synced.
func (s *sides) customThrough(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (*customWay, error) {
	platform, err := s.platform(ctx)
	if err != nil {
		return nil, err
	}
	tenant := side.TenantName(0)
	space, _, err := platform.start(ctx, tenant)
	if err != nil {
		return nil, err
	}
	host, err := s.hostPlane()
	if err != nil {
		return nil, err
	}
	if err := host.syncCustom(ctx, space, crd); err != nil {
		return nil, err
	}
	named := translate.Space{Name: tenant}
	return newCustomWay(ctx, crd, &customWay{
		name:   "through",
		tenant: way{plane: space, namespace: metav1.NamespaceDefault},
		controller: way{plane: host, namespace: named.HostNamespace(), hostName: func(name string) string {
			return named.HostName(metav1.NamespaceDefault, name, declaration.NameLimit)
		}},
	})
}

// customDirect starts a stock server, which has the users and the controller.
func (s *sides) customDirect(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) (*customWay, error) {
	stock, err := s.get(ctx, side.Stock)
	if err != nil {
		return nil, err
	}
	server, _, err := stock.start(ctx, "bench-custom")
	if err != nil {
		return nil, err
	}
	if err := server.createDefinition(ctx, crd); err != nil {
		return nil, err
	}
	own := way{plane: server, namespace: metav1.NamespaceDefault, hostName: func(name string) string { return name }}
	return newCustomWay(ctx, crd, &customWay{name: "direct", tenant: own, controller: own})
}

// newCustomWay starts the watches of users and the controller, and the controller.
func newCustomWay(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition, w *customWay) (_ *customWay, err error) {
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	for _, side := range []*way{&w.tenant, &w.controller} {
		if side.own, err = side.plane.watchCustom(ctx, crd, side.namespace); err != nil {
			return nil, err
		}
		w.stops = append(w.stops, side.own.stop)
	}
	return w, nil
}

func (w *customWay) stop() {
	for _, stop := range w.stops {
		stop()
	}
}

// customOnce creates objects, and returns the seconds until a watch of the controller has shown all, and until one of the user has shown
// the status of all. Then it deletes them.
func (b *bench) customOnce(ctx context.Context, w *customWay, crd *apiextensionsv1.CustomResourceDefinition, repeat int) (toHost, back float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, customTime)
	defer cancel()
	users, disconnect, err := w.tenant.plane.clients(b.bursters)
	if err != nil {
		return 0, 0, err
	}
	defer disconnect()
	controllers, disconnectControllers, err := w.controller.plane.clients(b.bursters)
	if err != nil {
		return 0, 0, err
	}
	defer disconnectControllers()
	names, onHost := make([]string, b.custom), make([]string, b.custom)
	for i := range names {
		names[i] = fmt.Sprintf("%s-%d-%d", w.name, repeat, i)
		onHost[i] = w.controller.hostName(names[i])
	}
	in, inHost := customPath(crd, w.tenant.namespace), customPath(crd, w.controller.namespace)
	if err := errors.Join(connectAll(ctx, users, in), connectAll(ctx, controllers, inHost)); err != nil {
		return 0, 0, err
	}
	work, working := errgroup.WithContext(ctx)
	begin := time.Now()
	for c := range users {
		work.Go(func() error {
			for i := c; i < len(names); i += len(users) {
				if err := createCustom(working, users[c], in, newCustom(crd, names[i])); err != nil {
					return fmt.Errorf("create an object in %s: %w", w.tenant.plane.name, err)
				}
			}
			return nil
		})
		work.Go(func() error { // reconciles an object when the watch shows it
			for i := c; i < len(names); i += len(controllers) {
				if err := w.controller.own.await(working, w.controller.own.seen, onHost[i]); err != nil {
					return err
				}
				if err := finishCustom(working, controllers[c], inHost, onHost[i]); err != nil {
					return fmt.Errorf("write a status in %s: %w", w.controller.plane.name, err)
				}
			}
			return nil
		})
	}
	work.Go(func() error {
		err := w.controller.own.await(working, w.controller.own.seen, onHost...)
		toHost = time.Since(begin).Seconds()
		return err
	})
	work.Go(func() error {
		err := w.tenant.own.await(working, w.tenant.own.runs, names...)
		back = time.Since(begin).Seconds()
		return err
	})
	if err := work.Wait(); err != nil {
		return 0, 0, err
	}
	return toHost, back, w.remove(ctx, users[0], in, names, onHost)
}

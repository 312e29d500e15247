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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/custom"
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
	// customRepeats is how many rounds are one repeat: each is over in seconds, and they differ by half.
	customRepeats = 2
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
	crd := custom.NewDefinitionWithStatus()
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
	p, err := b.inTurn(ctx, "custom_200_s", customRepeats*b.repeats, through.tenant.plane, side(through, &onHost.berth), side(direct, &onHost.stock))
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
		if side.own, err = custom.Watch(ctx, side.plane.config, crd, side.namespace); err != nil {
			return nil, fmt.Errorf("watch objects of %s: %w", side.plane.name, err)
		}
		w.stops = append(w.stops, side.own.Stop)
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
	in, inHost := custom.Path(crd, w.tenant.namespace), custom.Path(crd, w.controller.namespace)
	if err := errors.Join(custom.Connect(ctx, users, in), custom.Connect(ctx, controllers, inHost)); err != nil {
		return 0, 0, err
	}
	work, working := errgroup.WithContext(ctx)
	begin := time.Now()
	for c := range users {
		work.Go(func() error {
			for i := c; i < len(names); i += len(users) {
				if err := custom.Create(working, users[c], in, custom.New(crd, names[i])); err != nil {
					return fmt.Errorf("create an object in %s: %w", w.tenant.plane.name, err)
				}
			}
			return nil
		})
		work.Go(func() error { // reconciles an object when the watch shows it
			for i := c; i < len(names); i += len(controllers) {
				if err := w.controller.own.Await(working, w.controller.own.Seen, onHost[i]); err != nil {
					return err
				}
				if err := custom.Finish(working, controllers[c], inHost, onHost[i]); err != nil {
					return fmt.Errorf("write a status in %s: %w", w.controller.plane.name, err)
				}
			}
			return nil
		})
	}
	work.Go(func() error {
		err := w.controller.own.Await(working, w.controller.own.Seen, onHost...)
		toHost = time.Since(begin).Seconds()
		return err
	})
	work.Go(func() error {
		err := w.tenant.own.Await(working, w.tenant.own.Runs, names...)
		back = time.Since(begin).Seconds()
		return err
	})
	if err := work.Wait(); err != nil {
		return 0, 0, err
	}
	return toHost, back, w.remove(ctx, users[0], in, names, onHost)
}

// remove deletes all objects of a way, and waits until those of names are gone on both sides.
func (w *customWay) remove(ctx context.Context, user kubernetes.Interface, in string, names, onHost []string) error {
	if err := user.CoreV1().RESTClient().Delete().AbsPath(in).Do(ctx).Error(); err != nil {
		return fmt.Errorf("remove the objects from %s: %w", w.tenant.plane.name, err)
	}
	return errors.Join(w.controller.own.Await(ctx, w.controller.own.Gone, onHost...), w.tenant.own.Await(ctx, w.tenant.own.Gone, names...))
}

// createDefinition creates a definition, and waits until it is served.
func (p *plane) createDefinition(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	client, err := apiextensions.NewForConfig(rest.CopyConfig(p.config))
	if err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create a definition in %s: %w", p.name, err)
	}
	return p.awaitServed(ctx, client, crd)
}

// syncCustom shares a definition of the host with all tenants, syncs its objects, and waits until it does so for a space.
func (p *plane) syncCustom(ctx context.Context, space *plane, crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := p.createDefinition(ctx, crd); err != nil {
		return err
	}
	known := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(known); err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	host, err := client.New(rest.CopyConfig(p.config), client.Options{Scheme: known})
	if err != nil {
		return fmt.Errorf("make client of %s: %w", p.name, err)
	}
	all := []v1alpha1.CRDShareTenants{{Selector: &metav1.LabelSelector{}}}
	sync := &v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncToHost, Version: "v1", Tenants: all, MaxObjects: mostCustom, Status: []string{"status.phase"},
	}}
	for part := range custom.Parts {
		sync.Spec.Fields = append(sync.Spec.Fields, v1alpha1.SyncedField{Path: fmt.Sprint("spec.part", part)})
	}
	share := &v1alpha1.CRDShare{ObjectMeta: metav1.ObjectMeta{Name: crd.Name}, Spec: v1alpha1.CRDShareSpec{Mode: v1alpha1.ForcedCRD, Tenants: all}}
	for _, o := range []client.Object{share, sync} {
		if err := host.Create(ctx, o); err != nil {
			return fmt.Errorf("sync %s: %w", crd.Name, err)
		}
	}
	err = wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		err := host.Get(ctx, client.ObjectKeyFromObject(sync), sync)
		return meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionReady), err
	})
	if err != nil {
		return fmt.Errorf("wait until %s is synced: %w: %v", crd.Name, err, sync.Status.Conditions)
	}
	return p.awaitCustom(ctx, space, crd)
}

// awaitCustom waits until an object of a space is on the host, and deletes it. Requests fail while the space's API server starts again, which
// it does to begin with the sync.
func (p *plane) awaitCustom(ctx context.Context, space *plane, crd *apiextensionsv1.CustomResourceDefinition) error {
	client, disconnect, err := space.client()
	if err != nil {
		return err
	}
	defer disconnect()
	onHost, disconnectHost, err := p.client()
	if err != nil {
		return err
	}
	defer disconnectHost()
	const name = "first"
	in, inHost := custom.Path(crd, metav1.NamespaceDefault), custom.Path(crd, translate.Space{Name: space.name}.HostNamespace())
	synced := func(want int, ask func(ctx context.Context) error) error {
		var last error
		err := wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
			var on unstructured.UnstructuredList
			if last = ask(ctx); last != nil {
				return false, nil
			}
			var body []byte
			if body, last = onHost.CoreV1().RESTClient().Get().AbsPath(inHost).DoRaw(ctx); last == nil {
				last = on.UnmarshalJSON(body)
			}
			return last == nil && len(on.Items) == want, nil
		})
		if err != nil {
			return fmt.Errorf("wait until %s has %d objects of %s: %w", p.name, want, space.name, errors.Join(err, last))
		}
		return nil
	}
	err = synced(1, func(ctx context.Context) error {
		err := custom.Create(ctx, client, in, custom.New(crd, name))
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	return errors.Join(err, synced(0, func(ctx context.Context) error {
		err := client.CoreV1().RESTClient().Delete().AbsPath(in, name).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	}))
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bench/internal/side"
)

// What a tenant does at once who floods a space.
const (
	noiseObjects  = 3000 // that each list returns
	noiseLists    = 8
	noiseWatches  = 50 // that nobody reads
	noiseWriters  = 20
	noiseServices = 4
	noiseCRDs     = 2 // with rules in CEL
	noiseConnects = 4 // that connect for each request
	// noisePause is how long a client waits that was refused.
	noisePause = 100 * time.Millisecond
)

// flood is the side of the clients that flood a space. To start it is to begin, and to stop it is to end; it goes on and off.
type flood struct {
	loud              *plane
	ends              map[string]func() error
	answered, refused atomic.Int64
}

func openFlood(kubeconfig []byte) (side.Side, error) {
	loud, err := newPlane(nil, "noisy", kubeconfig)
	if err != nil {
		return nil, err
	}
	return &flood{loud: loud, ends: map[string]func() error{}}, nil
}

func (f *flood) Start(ctx context.Context, round string) (_ []byte, err error) {
	f.ends[round], err = f.begin(ctx, round)
	return nil, err
}

func (f *flood) Stop(_ context.Context, round string) error {
	end := f.ends[round]
	delete(f.ends, round)
	if end == nil {
		return nil
	}
	return end()
}

func (f *flood) Close(ctx context.Context) error {
	var errs []error
	for round := range f.ends {
		errs = append(errs, f.Stop(ctx, round))
	}
	return errors.Join(errs...)
}

// Answers counts what became of the requests.
func (f *flood) Answers() side.FloodAnswers {
	return side.FloodAnswers{Answered: f.answered.Load(), Refused: f.refused.Load()}
}

// fillNoisy makes what is listed.
func fillNoisy(ctx context.Context, loud *plane) error {
	clients, disconnect, err := loud.clients(noiseWriters)
	if err != nil {
		return err
	}
	defer disconnect()
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for c, client := range clients {
		wg.Go(func() {
			for i := c; i < noiseObjects && errs[c] == nil; i += len(clients) {
				errs[c] = createConfigMap(ctx, client, fmt.Sprintf("noise-%d", i))
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// begin begins to flood the space. end ends it, and waits for that.
func (f *flood) begin(ctx context.Context, round string) (end func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	clients, disconnect, err := f.loud.clients(noiseLists + noiseWatches + noiseWriters + noiseServices)
	if err != nil {
		cancel()
		return nil, err
	}
	config := rest.CopyConfig(f.loud.config)
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		disconnect()
		cancel()
		return nil, fmt.Errorf("make client of %s: %w", f.loud.name, err)
	}
	var wg sync.WaitGroup
	repeat := func(how int, ask func(client kubernetes.Interface, who, i int) error) {
		for who := range how {
			var client kubernetes.Interface
			client, clients = clients[0], clients[1:]
			wg.Go(func() {
				for i := 0; ctx.Err() == nil; i++ {
					f.count(ctx, ask(client, who, i))
				}
			})
		}
	}
	repeat(noiseLists, func(client kubernetes.Interface, _, _ int) error {
		body, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/configmaps").Stream(ctx)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, body)
		return errors.Join(err, body.Close())
	})
	repeat(noiseWatches, func(client kubernetes.Interface, _, _ int) error {
		body, err := client.CoreV1().RESTClient().Get().AbsPath("/api/v1/configmaps").Param("watch", "true").Stream(ctx)
		if err != nil {
			return err
		}
		<-ctx.Done() // and not a byte of it is read
		return body.Close()
	})
	repeat(noiseWriters, func(client kubernetes.Interface, who, i int) error {
		_, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Update(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("noise-%d", who)},
			Data:       map[string]string{"data": strings.Repeat("0123456789", writeSize/10), "turn": fmt.Sprint(round, i)},
		}, metav1.UpdateOptions{})
		return err
	})
	repeat(noiseServices, func(client kubernetes.Interface, who, _ int) error {
		name := fmt.Sprintf("noise-%d", who)
		_, err := client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
		}, metav1.CreateOptions{})
		return errors.Join(err, client.CoreV1().Services(metav1.NamespaceDefault).Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}))
	})
	for range noiseConnects {
		wg.Go(func() {
			for ctx.Err() == nil {
				f.count(ctx, f.connect(ctx))
			}
		})
	}
	for who := range noiseCRDs {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f.count(ctx, churnDefinition(ctx, definitions, fmt.Sprintf("noise%sx%dx%d", round, who, i)))
			}
		})
	}
	return func() error {
		cancel()
		wg.Wait()
		disconnect()
		return nil
	}, nil
}

// connect connects, asks for an object, and disconnects.
func (f *flood) connect(ctx context.Context) error {
	client, disconnect, err := f.loud.client()
	if err != nil {
		return err
	}
	defer disconnect()
	_, err = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(ctx, firstWrite, metav1.GetOptions{})
	return err
}

// count counts an answer, and lets a client wait that got none.
func (f *flood) count(ctx context.Context, err error) {
	switch {
	case ctx.Err() != nil:
	case err == nil:
		f.answered.Add(1)
	default:
		f.refused.Add(1)
		select {
		case <-time.After(noisePause):
		case <-ctx.Done():
		}
	}
}

// churnDefinition defines a kind, and removes it again.
func churnDefinition(ctx context.Context, client apiextensions.Interface, kind string) error {
	plural := kind + "s"
	name := plural + ".noise.example"
	_, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "noise.example", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: kind, Kind: strings.ToUpper(kind[:1]) + kind[1:]},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", XPreserveUnknownFields: ptr.To(true),
					XValidations: apiextensionsv1.ValidationRules{{Rule: "self.metadata.name.matches('^[-.a-z0-9]+$')"}},
				}},
			}},
		},
	}, metav1.CreateOptions{})
	return errors.Join(err, client.ApiextensionsV1().CustomResourceDefinitions().Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}))
}
